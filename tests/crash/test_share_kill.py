"""kill -9 while members of a share group fetch and acknowledge: no record is lost, none is
delivered again after it was accepted, and each one that is rejected gets a dead letter.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import incremental_alter_configs as altering
from kohort.protocol.messages import share_acknowledge as acks
from kohort.protocol.messages import share_fetch as fetches
from kohort.protocol.messages import share_group_heartbeat as beating
from kohort.protocol.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from tests.crash.test_consumer_groups_kill import NOT_READY
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.requests import create_topics, fetch_request, produce_request
from tests.support.network.wire import RawClient, framed, request_body
from tests.support.waiting import wait_until

GROUP: Final = "g"
TOPIC: Final = "t"
DEAD_LETTERS: Final = "dlq.t"
PARTITIONS: Final = 2
MEMBERS: Final = 8
LIMIT: Final = 5
ACCEPT, RELEASE, REJECT = 1, 2, 3
SETTINGS: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.num.partitions": "3",
}

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Checker:
    """What all members together have seen."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    delivered: set[Place] = field(default_factory=set)
    settled: set[Place] = field(default_factory=set)
    """Accepted or rejected, and that was answered."""
    rejected: set[Place] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def deliver(self, member: str, place: Place, count: int) -> None:
        with self.lock:
            self.delivered.add(place)
            if place in self.settled:
                self.problems.append(f"{member} got {place} again, delivery {count}")
            if not 1 <= count <= LIMIT:
                self.problems.append(f"{member} got {place} with count {count}")

    def settle(self, places: Iterator[tuple[Place, int]]) -> None:
        with self.lock:
            for place, kind in places:
                self.settled.add(place)
                if kind == REJECT:
                    self.rejected.add(place)


class Member(threading.Thread):
    """A member that fetches and acknowledges in requests of their own, on one connection."""

    def __init__(self, port: int, number: int, topic_id: bytes, checker: Checker) -> None:
        super().__init__(name=f"m{number}", daemon=True)
        self.is_ending = False
        self._port = port
        self._topic_id = topic_id
        self._checker = checker
        self._chance = random.Random(number)

    def run(self) -> None:
        while not self.is_ending:
            try:
                with RawClient(self._port) as client:
                    self._live(client)
            except (OSError, EOFError):
                time.sleep(0.05)
            except AssertionError as failure:
                self._checker.problems.append(f"{self.name}: {failure}")
                return

    def _live(self, client: RawClient) -> None:
        """Use one session until the connection breaks."""
        epoch = 0
        while not self.is_ending:
            answer = client.call(self._fetch(epoch), 2, fetches.ShareFetchResponse)
            if answer.error_code in NOT_READY:
                time.sleep(0.05)
                continue
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
            epoch += 1
            acquired: dict[int, list[fetches.AcquiredRecords]] = {}
            for topic in answer.responses:
                for partition in topic.partitions:
                    assert not partition.error_code, partition
                    acquired[partition.partition_index] = partition.acquired_records
                    for records in partition.acquired_records:
                        for offset in range(records.first_offset, records.last_offset + 1):
                            place = partition.partition_index, offset
                            self._checker.deliver(self.name, place, records.delivery_count)
            if any(acquired.values()):
                self._acknowledge(client, epoch, acquired)
                epoch += 1

    def _fetch(self, epoch: int) -> fetches.ShareFetchRequest:
        named = [] if epoch else range(PARTITIONS)
        return fetches.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_records=self._chance.choice((1, 7, 50)),
            batch_size=10,
            topics=[
                fetches.FetchTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        fetches.FetchPartition(partition_index=number, acknowledgement_batches=[])
                        for number in named
                    ],
                )
            ],
            forgotten_topics_data=[],
        )

    def _acknowledge(
        self, client: RawClient, epoch: int, acquired: dict[int, list[fetches.AcquiredRecords]]
    ) -> None:
        chosen: dict[int, list[acks.AcknowledgementBatch]] = {
            number: [
                acks.AcknowledgementBatch(
                    first_offset=records.first_offset,
                    last_offset=records.last_offset,
                    acknowledge_types=self._chance.choices(
                        (ACCEPT, RELEASE, REJECT),
                        (80, 15, 5),
                        k=records.last_offset - records.first_offset + 1,
                    ),
                )
                for records in ranges
            ]
            for number, ranges in acquired.items()
        }
        request = acks.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=epoch,
            topics=[
                acks.AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        acks.AcknowledgePartition(
                            partition_index=number, acknowledgement_batches=batches
                        )
                        for number, batches in chosen.items()
                    ],
                )
            ],
        )
        answer = client.call(request, 2, acks.ShareAcknowledgeResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                # A slow member may be late; then nothing of it counts.
                assert partition.error_code in {0, ErrorCode.INVALID_RECORD_STATE}, partition
                if not partition.error_code:
                    number = partition.partition_index
                    self._checker.settle(_finished(number, chosen[number]))


def _finished(number: int, batches: list[acks.AcknowledgementBatch]) -> Iterator[tuple[Place, int]]:
    for batch in batches:
        for offset, kind in enumerate(batch.acknowledge_types, batch.first_offset):
            if kind != RELEASE:
                yield (number, offset), kind


def begin(port: int, policy: str) -> bytes:
    """Create the topics, and initialize one for the group; return its id."""
    configure(port, GROUP, "share.auto.offset.reset", policy)
    configure(port, GROUP, "errors.deadletterqueue.topic.name", DEAD_LETTERS)
    with RawClient(port) as client:
        (topic_id,) = create_topics(client, TOPIC, partitions=PARTITIONS)
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        create_topics(client, DEAD_LETTERS, configs=enabled)
        join = beating.ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id="joining", member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        joined = client.call(join, 1, beating.ShareGroupHeartbeatResponse)
        assert not joined.error_code
    return topic_id


def configure(port: int, group: str, name: str, value: str) -> None:
    config = altering.AlterableConfig(name=name, config_operation=0, value=value)
    resource = altering.AlterConfigsResource(
        resource_type=32, resource_name=group, configs=[config]
    )
    with RawClient(port) as client:
        altered = client.call(
            altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            1,
            altering.IncrementalAlterConfigsResponse,
        )
    assert not altered.responses[0].error_code


def produce(port: int, chance: random.Random) -> None:
    with RawClient(port) as client:
        for number in range(PARTITIONS):
            batch = encode_batch([Record(b"v", timestamp=1)] * chance.randint(1, 30))
            request = produce_request(TOPIC, batch, partition=number)
            client.call(request, 9, m.ProduceResponse)


def positions(port: int) -> list[tuple[int, int]]:
    """(start offset, lag) of each partition."""
    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    with RawClient(port) as client:
        answer = client.call(
            DescribeShareGroupOffsetsRequest(groups=[group]), 1, DescribeShareGroupOffsetsResponse
        )
    return [
        (partition.start_offset, partition.lag)
        for topic in answer.groups[0].topics
        for partition in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]


def dead_letters(port: int) -> set[Place]:
    """Return the records that have a dead letter."""
    found: set[Place] = set()
    position = 0
    with RawClient(port) as client:
        while True:
            request = fetch_request(DEAD_LETTERS, position)
            answer = client.call(request, 12, m.FetchResponse)
            data = bytes(answer.responses[0].partitions[0].records or b"")
            if not data:
                return found
            for header, batch in split_batches(data, partial_tail=True):
                position = header.next_offset
                for record in decode_records(batch, header):
                    headers = dict(record.headers)
                    partition, offset = (
                        int(headers[f"__dlq.errors.{name}"] or b"")
                        for name in ("partition", "offset")
                    )
                    found.add((partition, offset))


@pytest.mark.parametrize(("policy", "flush"), [("earliest", ""), ("latest", "1")])
def test_every_record_is_delivered_and_none_after_it_was_accepted(
    tmp_path: Path, group_kills: int, policy: str, flush: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {group_kills} kills")
    chance = random.Random(seed)
    checker = Checker()
    settings = SETTINGS | ({"log.flush.interval.messages": flush} if flush else {})
    with KohortServer(tmp_path, overrides=settings) as broker:
        topic_id = begin(broker.port, policy)
        members = [Member(broker.port, number, topic_id, checker) for number in range(MEMBERS)]
        for member in members:
            member.start()
        for _ in range(group_kills):
            for _ in range(chance.randint(1, 4)):
                produce(broker.port, chance)
            time.sleep(chance.uniform(0, 0.5))
            broker.kill()
            broker.start()
            assert not checker.problems, checker.problems
        wait_until(
            lambda: all(lag == 0 for _, lag in positions(broker.port)), "everything is finished"
        )
        for member in members:
            member.is_ending = True
        for member in members:
            member.join()
        ends = [start for start, _ in positions(broker.port)]
        lettered = dead_letters(broker.port)
    assert not checker.problems, checker.problems
    produced = {(number, offset) for number, end in enumerate(ends) for offset in range(end)}
    assert checker.delivered == produced
    assert checker.rejected <= lettered <= produced
    print(
        f"{group_kills} kills, {len(produced)} records, {len(checker.settled)} settled, "
        f"{len(lettered)} with dead letters"
    )


def test_a_join_that_kill_9_interrupts_happens_or_not(tmp_path: Path, group_kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {group_kills} kills")
    chance = random.Random(seed)
    with KohortServer(tmp_path, overrides=SETTINGS) as broker:
        topic_id = begin(broker.port, "earliest")
        produce(broker.port, chance)
        for number in range(group_kills):
            group = f"interrupted-{number}"
            join = beating.ShareGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=[TOPIC]
            )
            configure(broker.port, group, "share.auto.offset.reset", "earliest")
            with RawClient(broker.port) as client:
                client.send(framed(request_body(join, 1)))
                time.sleep(chance.uniform(0, 0.02))
                broker.kill()
            broker.start()
            with RawClient(broker.port) as client:
                joined = client.call(join, 1, beating.ShareGroupHeartbeatResponse)
                assert joined.error_code == ErrorCode.NONE
                assert joined.assignment is not None
                (assigned,) = joined.assignment.topic_partitions
                assert assigned.partitions == list(range(PARTITIONS))
                fetch = Member(broker.port, number, topic_id, Checker())._fetch(0)
                fetch.group_id, fetch.max_records = group, 1_000
                answer = client.call(fetch, 2, fetches.ShareFetchResponse)
                assert answer.error_code == ErrorCode.NONE
                for topic in answer.responses:
                    for partition in topic.partitions:
                        assert not partition.error_code
                        assert partition.acquired_records
