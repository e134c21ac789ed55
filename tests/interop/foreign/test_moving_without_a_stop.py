"""MirrorMaker 2 as docs/outgrowing-one-machine.md sets it: from a Kohort into a Kafka, and from
there into another Kohort. What the page says of records, groups and what is left out holds.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.interop.foreign.mirror_maker import MirrorMaker, as_properties
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import (
    QUIET,
    ConfluentClient,
    admin_client,
    create_topics,
)
from tests.support.clients.model import Record, content
from tests.support.processes.java_env import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "outgrowing-one-machine.md").read_text(encoding="utf-8")
SOONER = {
    "sync.group.offsets.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "offset.flush.interval.ms": 500,
}
"""What the page leaves at a minute."""
TIMEOUT_S = 120
PARTITIONS = 2
RECORDS = 1_000
"""Records of each partition; their values count from 0."""
DELETED = 300
"""How many of them are deleted before the copy begins, so that offsets on both sides differ."""
BEHIND = 550
"""The next record of a group that has not read all."""
SET_BACK_MAX = 100
"""offset.lag.max, as the page says."""
MAKERS_OWN = re.compile(r"mm2-.*|(.*\.)?heartbeats|.*\.checkpoints\.internal")
"""Topics that the page says to remove in the end."""


def properties(old: ServerProcess, new: ServerProcess) -> str:
    """The page's, with our addresses, and what a test need not wait for."""
    (block,) = re.findall(r"^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert "kohort:9092" in block
    assert "kafka:9092" in block
    block = block.replace("kohort:9092", old.bootstrap).replace("kafka:9092", new.bootstrap)
    return f"{block}\n{as_properties(SOONER)}"


@contextmanager
def copying(directory: Path, old: ServerProcess, new: ServerProcess) -> Iterator[MirrorMaker]:
    maker = MirrorMaker(directory, properties(old, new))
    maker.start()
    try:
        yield maker
    finally:
        maker.kill()


def fill(server: ServerProcess) -> None:
    admin = admin_client(server.bootstrap)
    wanted = [
        NewTopic("orders", PARTITIONS, 1, config={"retention.ms": "987654321"}),
        NewTopic("prices", 1, 1, config={"cleanup.policy": "compact"}),
    ]
    create_topics(admin, *wanted)
    client = ConfluentClient(server.bootstrap)
    for partition in range(PARTITIONS):
        client.produce(
            "orders",
            [
                Record(b"%d" % n, key=b"k%d" % n, headers=(("h", b"v"),), partition=partition)
                for n in range(RECORDS)
            ],
        )
    client.produce("prices", [Record(b"%d" % n, key=b"p%d" % (n % 5)) for n in range(50)])
    gone = [TopicPartition("orders", one, DELETED) for one in range(PARTITIONS)]
    for deleted in admin.delete_records(gone).values():
        deleted.result(60)
    read_all(server, "done")
    commit(admin, "behind", BEHIND)
    commit(admin, "console-consumer-7", RECORDS)


def commit(admin: AdminClient, group: str, offset: int) -> None:
    places = [TopicPartition("orders", one, offset) for one in range(PARTITIONS)]
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    for future in admin.alter_consumer_group_offsets(wanted).values():
        future.result(60)


def committed(server: ServerProcess, group: str) -> dict[int, int]:
    admin = admin_client(server.bootstrap)  # Kept: what it is asked ends with it.
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(60).topic_partitions
    return {one.partition: one.offset for one in found if one.offset >= 0}


@contextmanager
def consumer_in(server: ServerProcess, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": server.bootstrap, "group.id": group}
        | {"auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False, "enable.partition.eof": True}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def values_to_the_end(consumer: Consumer) -> dict[int, list[int]]:
    """What is read of each partition of orders from here on."""
    found: dict[int, list[int]] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(500, 0.1):
            partition = message.partition()
            assert partition is not None
            values = found.setdefault(partition, [])
            if message.error() is None:
                values.append(int(message.value() or b""))
            else:
                ended.add(partition)
    return found


def read_all(server: ServerProcess, group: str) -> None:
    """By a member that joins, commits and leaves."""
    with consumer_in(server, group) as consumer:
        consumer.subscribe(["orders"])
        assert all(values_to_the_end(consumer).values())
        consumer.commit(asynchronous=False)


def next_values(server: ServerProcess, group: str) -> list[int]:
    """What the group reads next in each partition: the last value and 1 where nothing is left."""
    with consumer_in(server, group) as consumer:
        places = committed(server, group)
        assert len(places) == PARTITIONS
        consumer.assign([TopicPartition("orders", *place) for place in places.items()])
        found = values_to_the_end(consumer)
    return [found[number][0] if found[number] else RECORDS for number in sorted(found)]


def set_back(old: ServerProcess, new: ServerProcess, group: str) -> list[int]:
    """By how many records, in each partition. Below 0 it would leave records out."""
    pairs = zip(next_values(old, group), next_values(new, group), strict=True)
    return [before - after for before, after in pairs]


def topics(server: ServerProcess) -> set[str]:
    return set(admin_client(server.bootstrap).list_topics(timeout=30).topics)


def records(server: ServerProcess, topic: str) -> list[tuple[object, ...]]:
    """Each with its partition and time, in the order of the partitions."""
    if topic not in topics(server):
        return []
    found = ConfluentClient(server.bootstrap).read_to_end(topic, "read_committed")
    found.sort(key=lambda one: (one.partition, one.offset))
    return [(one.partition, one.timestamp_ms, content(one)) for one in found]


def config(server: ServerProcess, topic: str, name: str) -> str | None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = admin_client(server.bootstrap)
    (future,) = admin.describe_configs([resource]).values()
    value: str | None = future.result(60)[name].value
    return value


def assert_records_come_over(
    old: ServerProcess, new: ServerProcess, topic: str, maker: MirrorMaker
) -> None:
    expected = records(old, topic)
    wait_until(lambda: records(new, topic) == expected, maker.words, timeout_s=TIMEOUT_S)


def assert_group_comes_over(
    old: ServerProcess, new: ServerProcess, group: str, maker: MirrorMaker
) -> None:
    wait_until(lambda: len(committed(new, group)) == PARTITIONS, maker.words, timeout_s=TIMEOUT_S)
    assert min(set_back(old, new, group)) >= 0


def assert_has_come_over(old: ServerProcess, new: ServerProcess, maker: MirrorMaker) -> None:
    for topic in ("orders", "prices"):
        assert_records_come_over(old, new, topic, maker)
    assert config(new, "orders", "retention.ms") == "987654321"
    assert config(new, "prices", "cleanup.policy") == "compact"
    for group in ("done", "behind"):
        assert_group_comes_over(old, new, group, maker)
    wait_until(
        lambda: max(set_back(old, new, "done")) <= SET_BACK_MAX,
        lambda: f"{set_back(old, new, 'done')}\n{maker.words()}",
        timeout_s=TIMEOUT_S,
    )


def test_what_the_page_says_of_moving_without_a_stop_holds_there_and_back(tmp_path: Path) -> None:
    with (
        KohortServer(tmp_path / "first") as first,
        KafkaServer(tmp_path / "kafka") as kafka,
        KohortServer(tmp_path / "second") as second,
    ):
        fill(first)
        with copying(tmp_path / "there", first, kafka) as maker:
            assert_has_come_over(first, kafka, maker)
            assert committed(kafka, "console-consumer-7") == {}
            # What is written meanwhile comes over as well, and after a restart a group that is new.
            meanwhile = [Record(b"%d" % RECORDS, partition=one) for one in range(PARTITIONS)]
            ConfluentClient(first.bootstrap).produce("orders", meanwhile)
            assert_records_come_over(first, kafka, "orders", maker)
            maker.stop()
            commit(admin_client(first.bootstrap), "late", BEHIND)
            maker.start()
            assert_group_comes_over(first, kafka, "late", maker)
        came = {name for name in topics(kafka) if not MAKERS_OWN.fullmatch(name)}
        assert came - {"__consumer_offsets"} == {"orders", "prices"}
        with copying(tmp_path / "back", kafka, second) as maker:
            assert_has_come_over(kafka, second, maker)
