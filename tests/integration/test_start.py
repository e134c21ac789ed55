"""How the daemon starts: what stops it, what it says then, and what it finds again."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.broker.app import StartError
from kohort.broker.storage.metadata.store import FILE_NAME, MIRROR_FILE_NAME
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient

START_FAILED = 1
BAD_CONFIG = 2


def start(directory: Path, *overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the daemon, which must end by itself."""
    command = [sys.executable, "-m", "broker", "--override", f"log.dirs={directory}"]
    for override in (
        "listeners=PLAINTEXT://127.0.0.1:0",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
        *overrides,
    ):
        command += ["--override", override]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", "PYTHONPATH": ".", **environment},
    )


def create_topic(port: int, name: str, **configs: str) -> None:
    request = m.CreateTopicsRequest(
        topics=[
            m.CreatableTopic(
                name=name,
                num_partitions=3,
                replication_factor=-1,
                assignments=[],
                configs=[
                    m.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    with RawClient(port) as client:
        (created,) = client.call(request, 7, m.CreateTopicsResponse).topics
    assert created.error_code == ErrorCode.NONE


def partition_count(port: int, name: str) -> int:
    topics = [m.MetadataRequestTopic(name=name)]
    request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    with RawClient(port) as client:
        (topic,) = client.call(request, 12, m.MetadataResponse).topics
    return len(topic.partitions)


def config(port: int, name: str, key: str) -> str | None:
    resource = m.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=[key]
    )
    with RawClient(port) as client:
        request = m.DescribeConfigsRequest(resources=[resource])
        (result,) = client.call(request, 4, m.DescribeConfigsResponse).results
    return result.configs[0].value


def test_a_setting_that_does_not_exist_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.partition=3\n")
    ended = subprocess.run(
        [sys.executable, "-m", "broker", "--config", str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == BAD_CONFIG
    assert f"{file}:2: unknown setting num.partition; did you mean num.partitions?" in ended.stderr


def test_a_value_out_of_range_stops_the_start(tmp_path: Path) -> None:
    ended = start(tmp_path, KAFKA_NUM_PARTITIONS="0")
    assert ended.returncode == BAD_CONFIG
    assert "environment variable KAFKA_NUM_PARTITIONS" in ended.stderr
    assert "allowed: a whole number of at least 1" in ended.stderr


def test_a_listener_whose_port_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listener = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
        ended = start(tmp_path, f"listeners={listener}")
    assert ended.returncode == START_FAILED
    assert f"listener {listener} cannot be opened: " in ended.stderr
    assert "Address already in use" in ended.stderr


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "file" / "data"
    directory.parent.touch()
    ended = start(directory)
    assert ended.returncode == START_FAILED
    assert f"the data directory {directory} cannot be used: " in ended.stderr


def test_the_first_of_several_data_directories_must_be_the_one_with_data(tmp_path: Path) -> None:
    used, other = tmp_path / "used", tmp_path / "other"
    with BrokerThread(used) as running:
        create_topic(running.port, "orders")
    with BrokerThread(used, overrides={"log.dirs": f"{used},{other}"}) as running:
        assert partition_count(running.port, "orders") == 3
    with (
        pytest.raises(StartError, match=f"{used} contains a broker's data"),
        BrokerThread(other, overrides={"log.dirs": f"{other},{used}"}),
    ):
        pass


def test_a_damaged_metadata_database_is_replaced_by_its_mirror(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as running:
        create_topic(running.port, "orders", retention_ms="5000")
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 1
        content[20] ^= 0xFF
        (tmp_path / name).write_bytes(content)
        with BrokerThread(tmp_path) as running:
            assert partition_count(running.port, "orders") == 3
            assert config(running.port, "orders", "retention.ms") == "5000"


def test_damage_to_both_databases_is_told_and_topics_are_served_by_their_directories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path) as running:
        create_topic(running.port, "orders")
    for name in (FILE_NAME, MIRROR_FILE_NAME):
        (tmp_path / name).write_bytes(b"\xff" * 10_000)
    with BrokerThread(tmp_path) as running:
        assert partition_count(running.port, "orders") == 3
    assert "the metadata is rebuilt" in caplog.text
    assert "lost: the configs of topic orders" in caplog.text


def test_a_data_directory_serves_one_broker_and_one_cluster(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as running:
        create_topic(running.port, "orders")
        with pytest.raises(StartError, match="in use by another broker"), BrokerThread(tmp_path):
            pass
        assert partition_count(running.port, "orders") == 3
    other = {"kohort.cluster.id": "other"}
    with (
        pytest.raises(StartError, match=r"kohort\.cluster\.id is other"),
        BrokerThread(tmp_path, overrides=other),
    ):
        pass


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    server = KohortServer(tmp_path)
    with server:
        for number in range(5):
            create_topic(server.port, f"topic-{number}", retention_ms=str(1000 + number))
        server.kill()
        server.start()
        for number in range(5):
            assert partition_count(server.port, f"topic-{number}") == 3
            value = config(server.port, f"topic-{number}", "retention.ms")
            assert value == str(1000 + number)
