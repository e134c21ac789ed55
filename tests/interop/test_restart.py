"""What survives a restart of the broker, and what Kafka's own tool reads in its files.

Each starts a broker of its own.
"""

import re

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.tools import Tools
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.java_client import JavaClient
from tests.support.clients.model import Record, content
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

TOPIC = "survivor"
RECORDS = [Record(b"%d" % number, key=b"k%d" % number) for number in range(500)]


@pytest.fixture
def topic(own_broker: ServerProcess) -> str:
    admin = admin_client(own_broker.bootstrap)
    create_topics(admin, NewTopic(TOPIC, 1, 1, config={"segment.bytes": "1048576"}))
    return TOPIC


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_records_topics_configs_and_offsets_survive_a_restart(
    own_broker: ServerProcess, topic: str, ending: str
) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    client.produce(topic, RECORDS, idempotent=True)
    with client.join("readers", topic) as member:
        wait_until(lambda: len(member.records()) == len(RECORDS), "everything read")
    before = admin_client(own_broker.bootstrap).list_topics(timeout=10)

    if ending == "stop":
        assert own_broker.stop() == own_broker.clean_exit
    else:
        own_broker.kill()
    own_broker.start()

    admin = admin_client(own_broker.bootstrap)
    assert admin.list_topics(timeout=10).cluster_id == before.cluster_id
    received = client.consume(topic, len(RECORDS))
    assert [content(record) for record in received] == [content(record) for record in RECORDS]
    client.produce(topic, [Record(b"after")])
    with client.join("readers", topic) as member:
        wait_until(lambda: bool(member.records()), "the group to read on")
    assert [record.value for record in member.records()] == [b"after"]


def test_a_group_outlives_the_restart_of_its_broker(own_broker: ServerProcess, topic: str) -> None:
    client = ConfluentClient(own_broker.bootstrap)
    with client.join("steady", topic) as member:
        client.produce(topic, RECORDS[:100])
        wait_until(lambda: len(member.records()) == 100, "the first part read")

        assert own_broker.stop() == own_broker.clean_exit
        own_broker.start()
        client.produce(topic, RECORDS[100:])

        wait_until(lambda: len(member.records()) >= len(RECORDS), "the second part read")
    assert [record.value for record in member.records()] == [record.value for record in RECORDS]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_kafkas_dump_tool_reads_the_files_of_a_partition(
    own_broker: ServerProcess,
    topic: str,
    java_clients: JavaProcess,
    tool_process: JavaProcess,
    codec: str,
) -> None:
    client = JavaClient(own_broker.bootstrap, java_clients)
    values = [Record(b"%06d" % number + b"x" * 2000) for number in range(1200)]
    client.produce(topic, values, codec="zstd" if codec == "zstd" else "none", idempotent=True)
    assert own_broker.stop() == own_broker.clean_exit
    directory = own_broker.data / f"{topic}-0"
    logs, indexes, times = (
        sorted(str(path) for path in directory.glob(pattern))
        for pattern in ("*.log", "*.index", "*.timeindex")
    )
    tools = Tools(own_broker.bootstrap, tool_process)

    def dump(files: list[str], *options: str) -> str:
        name = "org.apache.kafka.tools.DumpLogSegments"
        result = tools.offline(name, "--files", ",".join(files), *options)
        assert result.exit == 0, result.err
        return result.out + result.err  # Mismatches are told on standard error.

    records = dump(logs, "--deep-iteration", "--print-data-log")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", records, re.MULTILINE)]
    assert offsets == list(range(1200))
    assert "isvalid: false" not in records
    assert records.count("payload: 0") == 1200
    if codec == "none":
        assert len(logs) > 1, "several segments are what makes this worth reading"
    checked = dump(indexes, "--index-sanity-check") + dump(times, "--index-sanity-check")
    assert "mismatch" not in checked.lower()
    assert "mismatch" not in dump([*indexes, *times], "--verify-index-only").lower()
