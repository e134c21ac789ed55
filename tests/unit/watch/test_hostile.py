"""Records that no coordinator writes, or that a watcher sees without those before."""

import random
import tracemalloc
from typing import Any

import pytest

from kohort.groups.consumer.records import (
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    EpochRecord,
    TargetEpochRecord,
)
from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.records import DurableRecord, GroupRecord, GroupTombstone, StoredMember
from kohort.protocol.records.record import Record
from kohort.watch.core.classic import ClassicGroup
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll
from kohort.watch.core.watcher import Watcher

Json = dict[str, Any]


def member(member_id: str, *, static: bool = False, assignment: bytes = b"") -> StoredMember:
    instance_id = f"static-{member_id}" if static else None
    return StoredMember(member_id, instance_id, member_id, "/h", 10_000, 60_000, b"", assignment)


def generation(number: int, *members: StoredMember, at_ms: int = -1) -> GroupRecord:
    leader = members[0].member_id if members else None
    return GroupRecord("g", "consumer", number, "range", leader, at_ms, members)


def consumer(member_id: str) -> ConsumerMemberRecord:
    return ConsumerMemberRecord(
        "g", member_id, None, None, member_id, "/h", ("t",), None, 60_000, None, None
    )


def stored(record: DurableRecord, at_ms: int, offset: int) -> Record:
    return Record(encode_value(record), encode_key(record), (), at_ms, offset)


def watch(*steps: list[DurableRecord | Record], timeouts: Timeouts | None = None) -> list[Json]:
    """Return the history of steps, two seconds apart."""
    watcher = Watcher({}, lambda group: timeouts or Timeouts())
    history: list[Json] = []
    offset = 0
    for number, step in enumerate(steps, 1):
        for record in step:
            at_ms = 2_000 * number
            ready = record if isinstance(record, Record) else stored(record, at_ms, offset)
            history += watcher.take([ready._replace(offset=offset)], Place(0, offset))
            offset += 1
    return history + list(watcher.flush())


def test_a_far_jump_of_generations_is_no_series_of_rebalances() -> None:
    a = member("a")
    assert len(watch([generation(1, a)], [generation(2**31 - 1, a)])) == 1
    assert len(watch([generation(1, a)], [generation(4, a)])) == 4


def test_a_generation_that_goes_back_begins_anew() -> None:
    a, b = member("a"), member("b")
    history = watch([generation(8, a)], [generation(9, a, b)], [generation(3, b)])
    assert [record["generation"] for record in history] == [9]


def test_a_first_generation_of_both_kinds_of_members_has_no_clear_cause() -> None:
    (record,) = watch([generation(1, member("a"), member("b", static=True))])
    assert record["trigger"]["certainty"] == "unclear"
    (record,) = watch([generation(1, member("a"), member("b"))])
    assert record["trigger"]["certainty"] == "likely"


def test_without_the_session_timeout_of_a_consumer_group_no_departure_is_clear() -> None:
    steps: list[list[DurableRecord | Record]] = [
        [consumer("a"), EpochRecord("g", 1, 0), TargetEpochRecord("g", 1, 0)],
        [consumer("b"), EpochRecord("g", 2, 0), TargetEpochRecord("g", 2, 0)],
        [ConsumerMemberTombstone("g", "b"), EpochRecord("g", 3, 0), TargetEpochRecord("g", 3, 0)],
        [consumer("c"), EpochRecord("g", 4, 0)],
    ]
    *_, known = watch(*steps)
    *_, unknown = watch(*steps, timeouts=Timeouts(is_known=False))
    assert known["trigger"]["kind"] == unknown["trigger"]["kind"] == "member_left"
    assert known["trigger"]["certainty"] == "likely"
    assert unknown["trigger"]["certainty"] == "unclear"


@pytest.mark.parametrize("tombstones", [[], [ConsumerMemberTombstone("g", "b")]])
def test_an_epoch_whose_members_are_unknown_has_no_cause(tombstones: list[Any]) -> None:
    first: list[DurableRecord | Record] = []
    if tombstones:
        first = [consumer("a"), EpochRecord("g", 1, 0), TargetEpochRecord("g", 1, 0)]
    history = watch(
        first,
        [*tombstones, EpochRecord("g", 2, 0), TargetEpochRecord("g", 2, 0)],
        [consumer("c"), EpochRecord("g", 3, 0)],
        [consumer("d"), EpochRecord("g", 4, 0)],
    )
    assert "topics_changed" not in [record["trigger"]["kind"] for record in history]


def test_nothing_is_concluded_across_a_record_that_cannot_be_decoded() -> None:
    a, b = member("a"), member("b")
    bad = stored(generation(2, a, b), 4_000, 0)._replace(value=b"\x7f\xff\x00")
    assert len(watch([generation(1, a)], [generation(2, a, b)], [generation(3, a)])) == 3
    assert len(watch([generation(1, a)], [bad], [generation(3, a)])) == 1


def test_random_bytes_are_counted_and_nothing_else() -> None:
    chance = random.Random(7)
    watcher = Watcher({}, lambda group: Timeouts())
    for offset in range(5_000):
        kind = chance.randrange(-2, 20).to_bytes(2, "big", signed=True)
        key = kind + b"\x00\x01g" + chance.randbytes(chance.randrange(12))
        value = chance.choice([None, b"", chance.randbytes(chance.randrange(60))])
        at_ms = chance.choice([-1, 0, 2**63 - 1, 1_000 * offset])
        for record in watcher.take([Record(value, key, (), at_ms, offset)], Place(0, offset)):
            assert record["group"] == "g"
    list(watcher.flush())
    assert watcher.unread_count > 1_000


def test_damaged_values_of_a_group_do_not_end_the_watcher() -> None:
    chance = random.Random(9)
    members = [member(f"m{number}", static=number % 2 == 0) for number in range(4)]
    watcher = Watcher({}, lambda group: Timeouts())
    for offset in range(3_000):
        number = chance.choice([-1, 0, 1, 2, 3, 2**31 - 1, offset % 50])
        shares = [
            one._replace(assignment=chance.randbytes(8), subscription=chance.randbytes(9))
            for one in chance.sample(members, chance.randrange(5))
        ]
        record = stored(generation(number, *shares), chance.randrange(10**6), offset)
        if chance.random() < 0.1:
            record = stored(GroupTombstone("g"), 1_000 * offset, offset)
        elif chance.random() < 0.5 and record.value:
            damaged = bytearray(record.value)
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            record = record._replace(value=bytes(damaged))
        list(watcher.take([record], Place(0, offset)))


def test_polls_of_a_large_group_share_its_members() -> None:
    group = ClassicGroup()
    tracemalloc.start()
    try:
        for second in range(100):
            ids = frozenset([f"member-{number}" for number in range(2_000)])
            group.poll(Poll(1_000 * second, "PreparingRebalance", ids))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
