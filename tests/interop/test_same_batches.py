"""Random batches with lying headers: the same answers, headers, searches by time and retention as
Kafka's.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    read_header,
    split_batches,
)
from kohort.protocol.records.record import decode_records, inflate
from tests.interop.conftest import start_twins
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import SESSION_STARTED_MS, Pair, Side, Twins, opened
from tests.interop.same_answers.random_batches import (
    HOUR_MS,
    RandomBatch,
    random_batch,
    random_timestamp,
)
from tests.interop.same_answers.scenes import (
    START,
    Topic,
    batch,
    create_topic,
    fetch_request,
    offsets_request,
    produce,
    produce_request,
)
from tests.support.records.batches import with_header
from tests.support.records.compressed_forms import Readers

TOPICS_SHORT: Final = 6
TOPICS_LONG: Final = 1_250
BATCHES_OF_TOPIC: Final = 16
TIMES_OF_TOPIC: Final = 20

RETENTION_MS: Final = HOUR_MS
RETENTION_ROUND_S: Final = 0.5
LARGEST_TIMESTAMP: Final = -3
INT64_MAX: Final = (1 << 63) - 1

COMMON: Final = {
    "retention.ms": "-1",
    "segment.ms": str(30 * 60_000),
    "min.compaction.lag.ms": str(1 << 60),
    "file.delete.delay.ms": "0",
}
KINDS: Final[tuple[dict[str, str], ...]] = (
    {},
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"message.timestamp.before.max.ms": str(24 * HOUR_MS)},
    {"message.timestamp.after.max.ms": str(INT64_MAX)},
)


@pytest.fixture(scope="module")
def own_twins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, *, long_form: bool
) -> Iterator[Twins]:
    """In the long form twins with frequent retention checks; Kafka's first comes after 30 s."""
    if not long_form:
        yield request.getfixturevalue("twins")
        return
    settings = {
        "log.retention.check.interval.ms": str(int(RETENTION_ROUND_S * 1000)),
    }
    with start_twins(tmp_path_factory.mktemp("batches"), settings) as twins:
        yield twins


@pytest.fixture
def pair(own_twins: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    with opened(own_twins, subtests) as pair:
        yield pair


def test_random_batches_get_the_same_answers_and_are_stored_alike(
    pair: Pair, long_form: bool
) -> None:
    new_seed = time.time_ns() % 1_000_000_007 if long_form else 1
    seed = int(os.environ.get("BATCHES_SEED") or new_seed)
    count = (TOPICS_LONG if long_form else TOPICS_SHORT) * BATCHES_OF_TOPIC
    print(f"BATCHES_SEED={seed}")
    topics: list[Topic] = []
    codes: Counter[ErrorCode] = Counter()
    for number in range(count // BATCHES_OF_TOPIC):
        rng = Random(f"{seed} {number}")
        kind = KINDS[number % len(KINDS)]
        topic = create_topic(pair, configs={**COMMON, **kind})
        sent = _produce(pair, rng, topic, codes)
        times, is_overstated = _compare_stored(pair, topic, sent)
        _compare_searches(pair, rng, topic, times, is_overstated=is_overstated)
        if "cleanup.policy" not in kind:
            topics.append(topic)
    print({code.name: number for code, number in codes.items()})
    assert codes[ErrorCode.NONE] > count // 4
    assert codes[ErrorCode.INVALID_RECORD] > count // 50
    assert codes[ErrorCode.INVALID_TIMESTAMP] > 0
    if long_form:
        _compare_retention(pair, topics)


def _produce(
    pair: Pair, rng: Random, topic: Topic, codes: Counter[ErrorCode]
) -> dict[int, RandomBatch]:
    """Send batches one by one, compare the error codes, and return what is stored, by offset."""
    sent: dict[int, RandomBatch] = {}
    first_of_any_age = rng.randrange(BATCHES_OF_TOPIC)
    for number in range(BATCHES_OF_TOPIC):
        one = random_batch(rng, is_old=number < first_of_any_age)
        version = rng.choice((3, 6, 7, 8, 9, 13))
        request = produce_request(topic, one.data)
        kafka, kohort = map(_outcome, pair.line.send(request, version).uncompared())
        codes[kohort.code] += 1
        is_refused_by_both = (
            kafka.code is ErrorCode.UNKNOWN_SERVER_ERROR and kohort.code is not ErrorCode.NONE
        )
        if kafka != kohort and not is_refused_by_both:
            header = one.data[:HEADER_BYTES].hex()
            pair.fail(request, version, f"  Kafka {kafka}, Kohort {kohort}; {one.form}, {header}")
            break  # The offsets of later batches may differ.
        if kohort.code is ErrorCode.NONE:
            # A sequence that was sent before is acknowledged with its first offset.
            sent.setdefault(kohort.base_offset, one)
    return sent


class Outcome(NamedTuple):
    """The answer for one batch."""

    code: ErrorCode
    base_offset: int


def _outcome(answer: Value) -> Outcome:
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    return Outcome(ErrorCode(partition.error_code), partition.base_offset)


def _compare_stored(
    pair: Pair, topic: Topic, sent: dict[int, RandomBatch]
) -> tuple[list[int], bool]:
    """Headers have to be equal, and records; blocks too, unless some clients cannot read them.

    Returns:
        The timestamps of all records, unless the brokers have set them; whether a header states a
        later time than its records have, which both brokers keep if it claims LogAppendTime.
    """
    kafka, kohort = (dict(_stored(pair, side, topic)) for side in pair.sides)
    if not ([*kafka] == [*kohort] == [*sent]):
        pair.fail(fetch_request(topic), 12, f"  Kafka {[*kafka]}, Kohort {[*kohort]}")
        return [], False
    times: list[int] = []
    is_overstated = False
    for offset, ours in kohort.items():
        theirs, one = kafka[offset], sent[offset]
        is_recompressed = ours[HEADER_BYTES:] != theirs[HEADER_BYTES:]
        headers = [_compared(data, is_recompressed=is_recompressed) for data in (theirs, ours)]
        if headers[0] != headers[1]:
            text = f"  Kafka {headers[0]}, Kohort {headers[1]}, sent {one.data[:61].hex()}"
            pair.fail(fetch_request(topic, offset), 12, text)
        if is_recompressed:
            assert one.form is not None
            assert one.form.readers is Readers.SOME
            assert inflate(ours, read_header(ours)) == inflate(theirs, read_header(theirs))
        if read_header(ours).timestamp_type is TimestampType.CREATE_TIME:
            of_batch = [record.timestamp for record in decode_records(ours)]
            times += of_batch
            is_overstated |= bool(of_batch) and read_header(ours).max_timestamp > max(of_batch)
    return times, is_overstated


def _stored(pair: Pair, side: Side, topic: Topic) -> Iterator[tuple[int, memoryview]]:
    """All batches, by offset. An answer of Kafka's ends with a segment."""
    offset = 0
    while True:
        request = fetch_request(topic, offset, partition_max_bytes=1 << 24)
        (answer,) = pair.line.ask_alone(side, request, 12).responses
        (partition,) = answer.partitions
        if not partition.records:
            return
        for header, data in split_batches(partition.records):
            yield header.base_offset, data
            offset = header.next_offset


def _compared(batch: memoryview, *, is_recompressed: bool) -> BatchHeader:
    header = read_header(batch)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        header = header._replace(max_timestamp=0, crc=0)
    return header._replace(length=0, crc=0) if is_recompressed else header


def _compare_searches(
    pair: Pair, rng: Random, topic: Topic, times: list[int], *, is_overstated: bool
) -> None:
    """If a segment ends with a batch whose header states too late a time, Kafka finds nothing there
    and does not look at later segments.
    """
    near = [time + by for time in times for by in (-1, 0, 1)]
    for timestamp in (*rng.sample(near, min(len(near), TIMES_OF_TOPIC)), random_timestamp(rng), 0):
        if 0 <= timestamp <= INT64_MAX:
            request = offsets_request(topic, timestamp)
            if not (is_overstated and _start(pair.peek(request, 7).kafka) == -1):
                pair.ask(request, 7)
    if any(0 <= time <= INT64_MAX for time in times):
        pair.ask(offsets_request(topic, LARGEST_TIMESTAMP), 7)


def _compare_retention(pair: Pair, topics: list[Topic]) -> None:
    """Limit the age of records, and compare the log start offsets after both retention checks."""
    control = create_topic(pair, configs=COMMON)
    for hours in (5, 0):
        produce(pair, control, _of_age(hours), _of_age(hours))
    for topic in (*topics, control):
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name=topic.name,
            configs=[
                AlterableConfig(name="retention.ms", config_operation=0, value=str(RETENTION_MS))
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        pair.ask(request, 1)
    deadline = time.monotonic() + 60
    while any(_start(answer) != 2 for answer in pair.peek(offsets_request(control, START), 7)):
        assert time.monotonic() < deadline
        time.sleep(RETENTION_ROUND_S)
    time.sleep(4 * RETENTION_ROUND_S)
    starts = [pair.ask_until_equal(offsets_request(topic, START), 7) for topic in topics]
    moved = sum(_start(answers.kohort) > 0 for answers in starts)
    print(f"retention: {moved} of {len(topics)} logs begin later")
    assert 0 < moved < len(topics)


def _of_age(hours: int) -> bytes:
    timestamp = SESSION_STARTED_MS - hours * HOUR_MS
    return with_header(batch(b"value"), base_timestamp=timestamp, max_timestamp=timestamp)


def _start(answer: Value) -> int:
    offset: int = answer.topics[0].partitions[0].offset
    return offset
