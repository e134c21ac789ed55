"""Topic administration with Kafka's own command line classes."""

import re
import uuid

import pytest

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.tools import Tools
from tests.support.clients.model import AN_HOUR_AGO_MS, Record


@pytest.fixture
def name() -> str:
    return f"interop-{uuid.uuid4().hex[:12]}"


def test_a_topic_is_created_described_widened_and_deleted(tools: Tools, name: str) -> None:
    tools.topics(
        *("--create", "--topic", name, "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=123456", "--config", "cleanup.policy=compact"),
    )
    assert name in tools.topics("--list").splitlines()

    description = tools.topics("--describe", "--topic", name)
    assert "PartitionCount: 3" in description
    assert "ReplicationFactor: 1" in description
    assert "retention.ms=123456" in description
    assert "cleanup.policy=compact" in description
    assert re.search(r"TopicId: [\w-]{22}\b", description)
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+", description)) == 3

    tools.topics("--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tools.topics("--describe", "--topic", name)

    tools.topics("--delete", "--topic", name)
    assert name not in tools.topics("--list").splitlines()


def test_topic_configs_are_set_shown_and_taken_back(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)

    tools.configs("--alter", *entity, "--add-config", "retention.ms=5000,segment.bytes=1048576")
    shown = tools.configs("--describe", *entity)
    assert "retention.ms=5000" in shown
    assert "segment.bytes=1048576" in shown

    tools.configs("--alter", *entity, "--delete-config", "retention.ms")
    shown = tools.configs("--describe", *entity)
    assert "retention.ms" not in shown
    assert "segment.bytes=1048576" in shown

    everything = tools.configs("--describe", "--all", *entity)
    assert re.search(r"retention\.ms=604800000 sensitive=false", everything)
    assert re.search(r"cleanup\.policy=delete .*DEFAULT_CONFIG:log\.cleanup\.policy", everything)


def test_a_config_that_does_not_exist_or_fit_is_refused(tools: Tools, topic: str) -> None:
    for setting in ("no.such.config=1", "segment.bytes=-1", "compression.type=best"):
        refusal = tools.attempt(
            "kafka.admin.ConfigCommand",
            *("--alter", "--entity-type", "topics", "--entity-name", topic),
            *("--add-config", setting),
        )

        assert refusal.exit == 1, setting
        assert "InvalidConfigurationException" in refusal.out + refusal.err
    assert "best" not in tools.configs("--describe", "--entity-type", "topics")


def test_broker_configs_are_described(tools: Tools) -> None:
    shown = tools.configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")

    assert "log.retention.ms=" in shown
    assert re.search(r"num\.partitions=\d+", shown)
    assert re.search(r"group\.initial\.rebalance\.delay\.ms=\d+", shown)


def test_the_ends_of_a_topic_are_shown(
    tools: Tools, client_named: ClientNamed, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    client_named("java").produce(
        topic,
        [
            Record(b"a", timestamp_ms=AN_HOUR_AGO_MS + 9000),
            Record(b"b", timestamp_ms=AN_HOUR_AGO_MS + 5000),
            Record(b"c", timestamp_ms=AN_HOUR_AGO_MS + 7000, partition=1),
        ],
    )

    def at(time: str) -> str:
        return tools.get_offsets("--topic", topic, "--time", time)

    assert at("-1").split() == [f"{topic}:0:2", f"{topic}:1:1"]
    assert at("earliest").split() == [f"{topic}:0:0", f"{topic}:1:0"]
    assert at("max-timestamp").split() == [f"{topic}:0:0", f"{topic}:1:0"]
    assert at(str(AN_HOUR_AGO_MS + 6000)).split() == [f"{topic}:0:0", f"{topic}:1:0"]


def test_records_are_deleted_up_to_an_offset(
    tools: Tools, client_named: ClientNamed, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = client_named("confluent")
    client.produce(topic, [Record(b"%d" % number) for number in range(10)])
    orders = tmp_path_factory.mktemp("orders") / "delete.json"
    orders.write_text(
        f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 4}}], "version": 1}}'
    )

    answer = tools.delete_records("--offset-json-file", str(orders))

    assert "low_watermark: 4" in answer
    assert tools.get_offsets("--topic", topic, "--time", "-2").strip() == f"{topic}:0:4"
    assert [record.offset for record in client.consume(topic, 6)] == list(range(4, 10))


def test_log_directories_show_the_size_of_a_topic(
    tools: Tools, client_named: ClientNamed, topic: str
) -> None:
    client_named("java").produce(topic, [Record(b"x" * 5000)])

    shown = tools.log_dirs("--describe", "--topic-list", topic)

    size = re.search(rf'"partition":"{topic}-0","size":(\d+)', shown)
    assert size is not None, shown
    assert 5000 < int(size[1]) < 6000


def test_the_broker_lists_the_requests_it_serves(tools: Tools) -> None:
    shown = tools.api_versions()

    assert "Produce(0): 0 to 13 [usable: 13]" in shown
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: \d+\]", shown)
    assert re.search(r"JoinGroup\(11\): 0 to 9 \[usable: 9\]", shown)
