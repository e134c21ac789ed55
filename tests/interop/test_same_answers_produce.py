"""Produce is answered as Kafka answers it, refusals included."""

from collections.abc import Callable

import pytest

from kohort.protocol.records.batch import CompressionType, TimestampType
from kohort.protocol.records.record import Record
from tests.interop.same_answers import differences
from tests.interop.same_answers.deliberate import CLOSED
from tests.interop.same_answers.pair import SESSION_STARTED_MS, Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    TIME_MS,
    batch,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.support import messages as m
from tests.support.records.batches import one_record, with_block, with_header

VERSIONS = range(3, 14)
DAY_MS = 24 * 3_600_000
NO_KEY = Record(b"no key", timestamp=TIME_MS)
KEY = Record(b"with key", key=b"k", timestamp=TIME_MS)


def at(timestamp: int) -> Record:
    return Record(b"value", key=b"key", timestamp=timestamp)


def test_batches_are_taken_in_every_version(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    for version in VERSIONS:
        for acks in (-1, 1):
            batches = {0: batch(b"a", b"b"), 1: batch(b"c")}
            pair.ask(produce_request(topic, batches, acks=acks), version)
    pair.ask(fetch_request(topic, {0: 0, 1: 0}), 12)


def test_each_codec_is_taken_where_its_version_has_it(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in VERSIONS:
        for codec in CompressionType:
            pair.ask(produce_request(topic, batch(b"x" * 500, codec=codec)), version)
    pair.ask(fetch_request(topic), 12)


def test_partitions_and_topics_that_are_not_there(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    one = batch()
    for version in VERSIONS:
        pair.ask(produce_request(topic, {0: one, 2: one, -1: one, 1: one}), version)
        pair.ask(produce_request(NOWHERE, one), version)
        both = produce_request(topic, {1: one})
        both.topic_data += produce_request(NOWHERE, {0: one}).topic_data
        pair.ask(both, version)


def test_a_request_for_nothing(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in VERSIONS:
        pair.ask(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), version)
        pair.ask(produce_request(topic, {}), version)


def test_acks_other_than_0_1_and_all(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    for version in VERSIONS:
        for acks in (2, -2):
            pair.ask(produce_request(topic, {0: batch(), 1: batch()}, acks=acks), version)
    pair.ask(produce_request(NOWHERE, batch(), acks=2), 9)
    pair.ask(fetch_request(topic), 12)


def corrupt(good: bytes, position: int) -> bytes:
    return good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :]


BAD_BATCHES: dict[str, Callable[[], bytes]] = {
    "no batch": lambda: b"",
    "two batches": lambda: batch() + batch(),
    "cut short": lambda: batch()[:-3],
    "cut in the header": lambda: batch()[:40],
    "too short for a magic": lambda: batch()[:16],
    "message set v1": lambda: (
        bytes(8) + bytes.fromhex("0000001c00000000 01 00".replace(" ", "")) + bytes(22)
    ),
    "magic 0": lambda: with_header(batch(), magic=0),
    "magic 1": lambda: with_header(batch(), magic=1),
    "magic 0, transactional": lambda: with_header(batch(is_transactional=True), magic=0),
    "cut short, transactional": lambda: batch(is_transactional=True)[:-3],
    "length 1, transactional": lambda: with_header(batch(is_transactional=True), length=1),
    "magic 3, transactional": lambda: with_header(batch(is_transactional=True), magic=3),
    "magic 3": lambda: with_header(batch(), magic=3),
    "magic -1": lambda: with_header(batch(), magic=-1),
    "wrong crc": lambda: with_header(batch(), crc=1),
    "flipped bit in a value": lambda: corrupt(batch(b"value"), 70),
    "length 0": lambda: with_header(batch(), length=0),
    "negative length": lambda: with_header(batch(), length=-1),
    "base offset 7": lambda: with_header(batch(), base_offset=7),
    "no records": lambda: with_block(b"", 0),
    "negative count": lambda: with_header(batch(), record_count=-1, last_offset_delta=-2),
    "count above the records": lambda: with_header(
        batch(b"1"), record_count=2, last_offset_delta=1
    ),
    "count below the records": lambda: with_header(
        batch(b"1", b"2"), record_count=1, last_offset_delta=0
    ),
    "wrong last offset delta": lambda: with_header(batch(b"1", b"2"), last_offset_delta=4),
    "records of nonsense": lambda: with_block(b"\xff" * 40, 1),
    "first offset delta is not 0": lambda: with_block(
        one_record(KEY, offset_delta=1), 1, base_timestamp=TIME_MS, max_timestamp=TIME_MS
    ),
    "control batch": lambda: batch(is_control=True),
    "producer id without sequence": lambda: batch(producer_id=4711, producer_epoch=0),
    "producer id with sequence -2": lambda: batch(
        producer_id=4711, producer_epoch=0, base_sequence=-2
    ),
    "transactional without producer": lambda: batch(is_transactional=True),
    "transactional": lambda: batch(
        is_transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0
    ),
    "larger than max.message.bytes": lambda: batch(b"x" * 1_048_588),
}


REFUSED_DIFFERENTLY = {
    "records of nonsense": differences.INVALID_BATCH,
    "first offset delta is not 0": differences.STRAY_OFFSET,
}
REFUSED_AS_A_WHOLE = {
    "magic 3",
    "magic 3, transactional",
    "magic -1",
    "length 0",
    "length 1, transactional",
    "negative length",
}
"""By Kafka, with everything else in the request."""


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_batches_that_are_refused(pair: Pair, name: str) -> None:
    topic = create_topic(pair)
    bad = BAD_BATCHES[name]()
    for version in VERSIONS:
        pair.ask(produce_request(topic, bad), version, differs=REFUSED_DIFFERENTLY.get(name))
    if REFUSED_DIFFERENTLY.get(name) is not differences.STRAY_OFFSET:
        pair.ask(fetch_request(topic), 12)


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_the_batches_beside_one_that_is_refused(pair: Pair, name: str) -> None:
    topic = create_topic(pair, partitions=2)
    request = produce_request(topic, {0: BAD_BATCHES[name](), 1: batch()})
    differs = REFUSED_DIFFERENTLY.get(name)
    if name in REFUSED_AS_A_WHOLE:
        differs = differences.FAILS_ALONE
    for version in (3, 7, 8, 13):
        pair.ask(request, version, differs=differs)


def test_the_largest_batch_that_is_taken(pair: Pair) -> None:
    topic = create_topic(pair, configs={"max.message.bytes": "1000"})
    room = 1000 - len(batch(b""))
    for size in range(room - 4, room + 2):
        pair.ask(produce_request(topic, batch(b"x" * size)), 9)


def test_a_batch_that_no_segment_can_hold(pair: Pair) -> None:
    topic = create_topic(pair, configs={"segment.bytes": "1048576", "max.message.bytes": "2000000"})
    for version in (8, 9):
        pair.ask(produce_request(topic, batch(b"x" * 1_048_577)), version)
        pair.ask(produce_request(topic, batch(b"x" * 1_048_000)), version)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_wants_keys(pair: Pair, policy: str) -> None:
    topic = create_topic(pair, configs={"cleanup.policy": policy})
    for version in VERSIONS:
        for codec in (CompressionType.NONE, CompressionType.GZIP):
            pair.ask(produce_request(topic, batch(KEY, NO_KEY, KEY, NO_KEY, codec=codec)), version)
        pair.ask(produce_request(topic, batch(KEY)), version)


TIMES = {
    "none": lambda: [-1],
    "none, then one": lambda: [-1, TIME_MS],
    "the beginning of time": lambda: [0],
    "long ago": lambda: [TIME_MS - 4000 * DAY_MS],
    "nearly an hour ahead": lambda: [SESSION_STARTED_MS + 3_000_000],
    "a day ahead": lambda: [SESSION_STARTED_MS + DAY_MS],
    "one of three a day ahead": lambda: [TIME_MS, SESSION_STARTED_MS + DAY_MS, TIME_MS],
    "two of three a day ahead": lambda: [
        SESSION_STARTED_MS + DAY_MS,
        TIME_MS,
        SESSION_STARTED_MS + DAY_MS,
    ],
    "falling": lambda: [TIME_MS + 5, TIME_MS + 3, TIME_MS],
}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_timestamps_of_records(pair: Pair, name: str, codec: CompressionType) -> None:
    topic = create_topic(pair)
    bounded = create_topic(
        pair,
        configs={
            "message.timestamp.before.max.ms": str(DAY_MS),
            "message.timestamp.after.max.ms": "0",
        },
    )
    for version in VERSIONS:
        data = batch(*(at(time) for time in TIMES[name]()), codec=codec)
        pair.ask(produce_request(topic, data), version)
        pair.ask(produce_request(bounded, data), version)
    pair.ask(fetch_request(topic), 12)


def test_a_topic_that_stamps_records_itself(pair: Pair) -> None:
    topic = create_topic(pair, configs={"message.timestamp.type": "LogAppendTime"})
    for version in VERSIONS:
        for codec in (CompressionType.NONE, CompressionType.SNAPPY):
            for time in (-1, TIME_MS, SESSION_STARTED_MS + DAY_MS):
                pair.ask(produce_request(topic, batch(at(time), at(time), codec=codec)), version)
    pair.ask(fetch_request(topic), 12)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_clients_that_claim_the_brokers_time(pair: Pair, kind: str) -> None:
    topic = create_topic(pair, configs={"message.timestamp.type": kind})
    for version in VERSIONS:
        for time in (TIME_MS, SESSION_STARTED_MS + DAY_MS):
            claimed = batch(at(time), at(time), timestamp_type=TimestampType.LOG_APPEND_TIME)
            pair.ask(produce_request(topic, claimed), version)
    pair.ask(fetch_request(topic), 12)


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
def test_payloads_that_do_not_decompress(pair: Pair, codec: CompressionType) -> None:
    topic = create_topic(pair)
    broken = with_block(one_record(KEY), 1, codec, base_timestamp=TIME_MS, max_timestamp=TIME_MS)
    plain = with_header(batch(KEY), attributes=int(codec))
    cut = with_header(broken[:-2], length=len(broken) - 14)
    for version in (7, 9, 13):
        pair.ask(produce_request(topic, broken), version)
        for bad in (plain, cut):
            pair.ask(produce_request(topic, bad), version, differs=differences.INVALID_BATCH)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_codecs_that_do_not_exist(pair: Pair, codec_id: int) -> None:
    topic = create_topic(pair)
    for version in VERSIONS:
        bad = with_header(batch(), attributes=codec_id)
        pair.ask(produce_request(topic, bad), version, differs=differences.INVALID_BATCH)


def test_null_records(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    line = pair.open(timeout_s=0.5)
    for version in (3, 8, 13):
        line.ask(produce_request(topic, {0: None}), version, differs=differences.NULL_RECORDS)


def test_failures_without_an_answer_close_the_connection(pair: Pair) -> None:
    topic = create_topic(pair)
    is_still_open = m.MetadataRequest(topics=[])
    for version in VERSIONS:
        pair.line.send(produce_request(topic, batch(), acks=0), version)
        pair.ask(is_still_open, 4)
        for request in (
            produce_request(topic, b"", acks=0),
            produce_request(NOWHERE, batch(), acks=0),
            produce_request(topic, {0: batch(), 1: batch()}, acks=0),
        ):
            pair.line.send(request, version)
            assert pair.ask(is_still_open, 4, may_close=True) == (CLOSED, CLOSED)
    pair.ask(fetch_request(topic), 12)
