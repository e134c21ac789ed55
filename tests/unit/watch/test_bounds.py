"""What a watcher keeps is bounded by what exists, and what it does by what changes."""

import gc
import tracemalloc
from collections.abc import Container, Sequence
from typing import Final

import pytest

from kohort.groups.consumer.records import (
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    CurrentRecord,
    EpochRecord,
    TargetEpochRecord,
)
from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    StoredMember,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.watch.core.commits import Reached
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import Json, Watcher

TOPIC: Final = "t"
TOPIC_ID: Final = b"t" * 16


class Watched:
    """A watcher, and the batches that it reads, a second apart."""

    def __init__(self, left_out: Container[str] = ()) -> None:
        self.timeouts = Timeouts()
        self.watcher = Watcher({TOPIC_ID: TOPIC}, lambda group: self.timeouts, left_out)
        self.partition = OffsetsPartition(self.watcher, 0)
        self.at_ms = 1_700_000_000_000

    def batch(self, *records: DurableRecord) -> bytes:
        self.at_ms += 1_000
        stored = [
            Record(encode_value(record), encode_key(record), (), self.at_ms) for record in records
        ]
        return encode_batch(stored, base_offset=self.partition.next_offset, leader_epoch=0)

    def take(self, *records: DurableRecord) -> list[Json]:
        return list(self.partition.take(self.batch(*records), 1 << 62))

    def flush(self) -> list[Json]:
        return list(self.watcher.flush(self.at_ms + 1))


def generation(group: str, number: int, *ids: str) -> GroupRecord:
    members = [StoredMember(one, None, one, "/h", 10_000, 60_000, b"", b"") for one in ids]
    return GroupRecord(group, "consumer", number, "range", ids[0], -1, tuple(members))


def consumer(member_id: str) -> ConsumerMemberRecord:
    return ConsumerMemberRecord(
        "g", member_id, None, None, "c", "/h", (TOPIC,), None, 60_000, None, None
    )


def commits(group: str, count: int) -> Sequence[OffsetRecord]:
    committed = CommittedOffset(5, 0, "", 7, -1, TOPIC_ID)
    return [OffsetRecord(group, TOPIC, index, committed) for index in range(count)]


@pytest.mark.parametrize("left_out", [set(), {"g"}], ids=["followed", "left out"])
def test_repeated_commits_are_not_decoded(left_out: set[str]) -> None:
    watched = Watched(left_out)
    watched.take(generation("g", 1, "a"))
    watched.take(*commits("g", 5))
    assert len(watched.watcher.positions()) == (0 if left_out else 5)
    batch = watched.batch(*commits("g", 5))
    begin = Reached(0, watched.partition.next_offset)
    reached = watched.watcher.skip_commits(batch, begin, 0, 1 << 62, None)
    assert reached == Reached(len(batch), begin.offset + 5, 1, watched.at_ms)


def test_groups_that_come_and_go_take_no_memory() -> None:
    watched = Watched()

    def come_and_go(number: int) -> None:
        group = f"group-{number}"
        watched.take(generation(group, 1, "a"))
        watched.take(*commits(group, 20))
        watched.take(*[OffsetTombstone(group, TOPIC, index) for index in range(20)])
        watched.take(GroupTombstone(group))
        watched.flush()

    for number in range(100):  # The encoders' caches are full then.
        come_and_go(number)
    tracemalloc.start()
    try:
        for number in range(100, 200):
            come_and_go(number)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(200, 400):
            come_and_go(number)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 200 * 500
    finally:
        tracemalloc.stop()


def test_a_group_that_is_created_again_continues_its_numbers() -> None:
    watched = Watched()
    watched.take(generation("g", 1, "a"))
    watched.take(GroupTombstone("g"))
    watched.flush()
    watched.take(generation("g", 1, "b"))
    (record,) = watched.flush()
    assert record["sequence"] == 2
    assert record["trigger"]["kind"] == "member_added"


def test_a_large_consumer_group_costs_what_changes() -> None:
    """Bytes, which unlike times are the same in each run."""

    def allocated(size: int) -> int:
        watched = Watched()
        watched.take(
            *[consumer(f"m{number}") for number in range(size)],
            EpochRecord("g", 1, 0),
            TargetEpochRecord("g", 1, 0),
        )
        watched.take(CurrentRecord("g", "m0", 1, 0, 0, {TOPIC_ID: {0: 1}}, {}))
        batch = watched.batch(CurrentRecord("g", "m1", 1, 0, 0, {TOPIC_ID: {1: 1}}, {}))
        tracemalloc.start()
        try:
            list(watched.partition.take(batch, 1 << 62))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert allocated(4_000) < 2 * allocated(40)


def test_the_settings_of_a_consumer_group_are_those_of_the_time() -> None:
    watched = Watched()
    watched.take(consumer("a"), consumer("b"), EpochRecord("g", 1, 0), TargetEpochRecord("g", 1, 0))
    watched.timeouts = Timeouts(session_ms=500, heartbeat_ms=100)
    gone = ConsumerMemberTombstone("g", "b")
    watched.take(gone, EpochRecord("g", 2, 0), TargetEpochRecord("g", 2, 0))
    watched.flush()
    watched.take(consumer("c"), EpochRecord("g", 3, 0), TargetEpochRecord("g", 3, 0))
    (record,) = watched.flush()
    assert record["trigger"]["certainty"] == "unclear"
