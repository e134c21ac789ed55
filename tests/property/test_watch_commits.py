"""A watcher concludes the same from commits that it does not decode."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

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
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from kohort.protocol.records.batch import HEADER_BYTES, CompressionType, TimestampType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Headers, Record
from kohort.watch.core.commits import Reached
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import Json, Watcher, key_prefix
from tests.support.suites.examples import examples

GROUPS = "g", "a group whose name has more than sixty-four bytes, so that its keys are long"
TOPIC = "t"
SESSION_MS = 10_000
END = 1 << 62


class Decoding(Watcher):
    def skip_commits(self, batches: bytes, at: Reached, *_: object) -> Reached:
        return at


def generation(group: str, number: int, size: int, at_ms: int) -> GroupRecord:
    members = []
    for index in range(size):
        listed = [TopicPartition(topic=TOPIC, partitions=[2 * index, 2 * index + 1])]
        assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=listed), 0)
        name = f"member-{index}-{number if index else 0}"
        members.append(
            StoredMember(name, None, name, "/h", SESSION_MS, 60_000, b"\0\0\0\0\0\0", assignment)
        )
    leader = members[0].member_id if members else None
    return GroupRecord(group, "consumer", number, "range", leader, at_ms, tuple(members))


IDS = b"1" * 16, b"2" * 16, bytes(16)


def commit(group: str, partition: int, metadata: str, topic_id: bytes) -> OffsetRecord:
    return OffsetRecord(group, TOPIC, partition, CommittedOffset(5, 0, metadata, 7, -1, topic_id))


class Written(NamedTuple):
    changes: Sequence[Any]
    """Records, or a group and the size of its next generation."""
    later_ms: int = 1
    deltas_ms: Sequence[int] = (0, 0, 0, 0, 0, 0)
    codec: CompressionType = CompressionType.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    is_transactional: bool = False
    raised: int = 0
    """By how much the leader epoch is higher."""
    headers: Headers = ()


ALL = Written([commit(group, index, "", IDS[0]) for group in GROUPS for index in range(3)])
FIRST = Written([(group, 2) for group in GROUPS]), ALL
LAST = Written([(group, 0) for group in GROUPS])


def drawn(chance: random.Random) -> Written:
    """Return a batch: two thirds are commits alone, as brokers write them."""
    group = chance.choice(GROUPS)
    later_ms = chance.choice([0, 1, 40, 900, 2_000, 5_000, 9_000])
    few = chance.randint(1, 4)
    usual = [commit(group, chance.randrange(4), "m" * 70, IDS[0]) for _ in range(few)]
    if chance.random() < 0.7:
        stamped = TimestampType(chance.random() < 0.05)
        raised = chance.random() < 0.05
        deltas_ms = chance.choices([0, 1, 30], k=6)
        return Written(usual, later_ms, deltas_ms, timestamp_type=stamped, raised=raised)
    if chance.random() < 0.4:
        return Written([(group, chance.choice([0, 1, 2, 2]))], later_ms)
    unusual: list[Any] = [
        commit(group, chance.randrange(7), chance.choice(["", "m" * 9_000]), chance.choice(IDS)),
        OffsetTombstone(group, TOPIC, chance.randrange(4)),
        (group, chance.randrange(3)),
        GroupTombstone(group),
    ]
    return Written(
        chance.choice([usual, usual, chance.choices([*usual, *unusual], k=few)]),
        later_ms,
        chance.choices([0, 0, 0, -1, 64, 9_000], k=6),
        chance.choice([*[CompressionType.NONE] * 9, *CompressionType]),
        chance.choice([*[TimestampType.CREATE_TIME] * 4, TimestampType.LOG_APPEND_TIME]),
        is_transactional=chance.random() < 0.2,
        raised=chance.choice([0, 0, 1]),
        headers=chance.choice([(), (), (("h", b"v"),)]),
    )


def encoded(batches: Sequence[Written]) -> Iterator[bytes]:
    """Encode batches, each of which is later than the one before."""
    at_ms, offset, epoch = 1_700_000_000_000, 0, 0
    numbers = dict.fromkeys(GROUPS, 0)
    for batch in (*FIRST, *batches, LAST):
        at_ms += batch.later_ms
        epoch += batch.raised
        records = []
        for change, delta_ms in zip(batch.changes, batch.deltas_ms, strict=False):
            record: DurableRecord = change
            if change.__class__ is tuple:
                group, size = change
                numbers[group] += 1
                record = generation(group, numbers[group], size, at_ms)
            value, key = encode_value(record), encode_key(record)
            records.append(Record(value, key, batch.headers, at_ms + delta_ms))
        if records:
            yield encode_batch(
                records,
                base_offset=offset,
                codec=batch.codec,
                timestamp_type=batch.timestamp_type,
                producer_id=1 if batch.is_transactional else -1,
                leader_epoch=epoch,
                is_transactional=batch.is_transactional,
            )
            offset += len(records)


def history(watcher: Watcher, encoded_batches: Sequence[bytes], prefix: bytes | None) -> list[Json]:
    partition = OffsetsPartition(watcher, 0, 0, prefix)
    records: list[Json] = []
    for start in range(0, len(encoded_batches), 3):
        data = b"".join(encoded_batches[start : start + 3])
        records += partition.take(data + data[:HEADER_BYTES], END)
    last = read_header(encoded_batches[-1])
    assert partition.next_offset == last.next_offset
    return records + list(watcher.flush())


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(), prefix=st.sampled_from([None, None, *map(key_prefix, GROUPS)]))
def test_commits_count_the_same_whether_they_are_decoded_or_not(
    seed: int, prefix: bytes | None
) -> None:
    chance = random.Random(seed)
    written = list(encoded([drawn(chance) for _ in range(80)]))
    expected = history(Decoding({}, lambda group: Timeouts()), written, prefix)
    assert history(Watcher({}, lambda group: Timeouts()), written, prefix) == expected
