"""Fetch is answered as Kafka answers it: what, how much and when."""

import time

import pytest

from kohort.protocol.records.batch import CompressionType
from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    Topic,
    batch,
    create_topic,
    fetch_request,
    produce,
)
from tests.support import messages as m

VERSIONS = range(4, 19)


@pytest.fixture
def filled(pair: Pair) -> Topic:
    """Two partitions: one of three batches of three records, and one of one."""
    topic = create_topic(pair, partitions=2)
    produce(pair, topic, *(batch(b"a" * 50, b"b" * 50, b"c" * 50) for _ in range(3)))
    produce(pair, topic, batch(b"other"), partition=1)
    return topic


def test_records_from_every_offset_in_every_version(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        for isolation_level in (0, 1):
            for offset in (0, 1, 2, 3, 8, 9):
                request = fetch_request(filled, offset, isolation_level=isolation_level)
                pair.ask(request, version)
        pair.ask(fetch_request(filled, {0: 3, 1: 0}), version)


def test_offsets_outside_of_the_log(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        for offset in (10, -1, -2, 2**62):
            request = fetch_request(filled, {0: offset, 1: 0}, max_wait_ms=10_000, min_bytes=10_000)
            pair.ask(request, version)


def test_topics_and_partitions_that_are_not_there(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        request = fetch_request(filled, {0: 0, 2: 0, -1: 0}, max_wait_ms=0, min_bytes=10_000)
        request.topics += fetch_request(NOWHERE).topics
        pair.ask(request, version, differs=differences.UNKNOWN_PARTITION)
        pair.ask(fetch_request(NOWHERE), version, differs=differences.UNKNOWN_PARTITION)


def test_nothing_asked_for(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        pair.ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), version)
        pair.ask(m.FetchRequest(max_wait_ms=50, min_bytes=1, topics=[]), version)
        pair.ask(fetch_request(filled, {}), version)


def test_byte_limits(pair: Pair, filled: Topic) -> None:
    size = len(batch(b"a" * 50, b"b" * 50, b"c" * 50))
    for version in (4, 11, 12, 18):
        for limit in (0, 1, size - 1, size, size + 1, 2 * size, 10 * size):
            for offsets in ({0: 0}, {0: 4}, {0: 0, 1: 0}, {1: 0, 0: 0}, {0: 9, 1: 0}):
                pair.ask(fetch_request(filled, offsets, max_bytes=limit), version)
                pair.ask(fetch_request(filled, offsets, partition_max_bytes=limit), version)


def test_negative_byte_limits(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        for low in ("max_bytes", "partition_max_bytes"):
            request = fetch_request(filled, {0: 0}, **{low: -1})
            pair.ask(request, version, differs=differences.NEGATIVE_LIMIT)


def test_leader_epochs(pair: Pair, filled: Topic) -> None:
    for version in VERSIONS:
        if version >= 9:
            for epoch in (-2, -1, 0, 1, 5):
                pair.ask(fetch_request(filled, current_leader_epoch=epoch), version)


def test_epochs_that_followers_send(pair: Pair, filled: Topic) -> None:
    for version in range(12, 19):
        for epoch in (-1, 0):
            pair.ask(fetch_request(filled, 3, last_fetched_epoch=epoch), version)
        request = fetch_request(filled, 3, last_fetched_epoch=1)
        pair.ask(request, version, differs=differences.NO_FOLLOWERS)


@pytest.mark.parametrize("codec", CompressionType)
def test_compressed_batches_to_old_and_new_versions(pair: Pair, codec: CompressionType) -> None:
    topic = create_topic(pair)
    produce(pair, topic, batch(b"x" * 500, b"y" * 500, codec=codec))
    for version in VERSIONS:
        pair.ask(fetch_request(topic, 1), version)


def test_a_topic_of_zstd_by_its_config(pair: Pair) -> None:
    topic = create_topic(pair, configs={"compression.type": "zstd"})
    produce(pair, topic, batch(b"x" * 500, codec=CompressionType.ZSTD))
    for version in VERSIONS:
        pair.ask(fetch_request(topic), version)


def test_waiting_for_bytes_that_do_not_come(pair: Pair, filled: Topic) -> None:
    for version in (4, 12, 18):
        for offsets in ({0: 9}, {0: 0}, {0: 9, 1: 1}):
            request = fetch_request(filled, offsets, max_wait_ms=150, min_bytes=100_000)
            begun = time.monotonic()
            pair.ask(request, version)
            assert time.monotonic() - begun >= 0.15


def test_what_comes_while_a_request_waits(pair: Pair, filled: Topic) -> None:
    waiting = pair.open()
    for version in VERSIONS:
        end = 9 + version - VERSIONS[0]
        request = fetch_request(filled, {0: end, 1: 1}, max_wait_ms=15_000, min_bytes=1)
        pending = waiting.send(request, version)
        produce(pair, filled, batch(b"new"))
        answers = pending.answers(differs=differences.watermark_before_the_append(end))
        for answer in answers:
            (found,) = answer.responses
            came = {one.partition_index: bool(one.records) for one in found.partitions}
            assert came == {0: True, 1: False}


@pytest.mark.parametrize("low_limit", ["max_bytes", "partition_max_bytes"])
def test_a_large_first_batch_is_sent_whole(pair: Pair, low_limit: str) -> None:
    topic = create_topic(pair, partitions=2)
    for partition in (0, 1):
        produce(pair, topic, batch(b"x" * 100_000), batch(b"y" * 100_000), partition=partition)
    for version in (4, 12, 18):
        for offsets in ({0: 0}, {0: 0, 1: 0}, {0: 2, 1: 1}):
            pair.ask(fetch_request(topic, offsets, **{low_limit: 1}), version)


def test_the_start_that_deleted_records_leave(pair: Pair, filled: Topic) -> None:
    topic = m.DeleteRecordsTopic(
        name=filled.name, partitions=[m.DeleteRecordsPartition(partition_index=0, offset=4)]
    )
    pair.ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    for version in VERSIONS:
        for offset in (0, 3, 4, 5):
            pair.ask(fetch_request(filled, offset), version)


def test_sessions(pair: Pair, filled: Topic) -> None:
    for version in range(7, 19):
        opened = fetch_request(filled)
        opened.session_epoch = 0
        answers = pair.ask(opened, version, differs=differences.NO_SESSIONS)
        opened.session_id, opened.session_epoch = answers.each(lambda one: one.session_id), -1
        pair.ask(opened, version)


@pytest.mark.parametrize(
    ("session_id", "epoch"), [(4711, 1), (4711, 0), (4711, -1), (0, 1), (0, 5), (-1, 1), (-1, -1)]
)
def test_sessions_that_were_never_opened(
    pair: Pair, filled: Topic, session_id: int, epoch: int
) -> None:
    for version in range(7, 19):
        request = fetch_request(filled)
        request.session_id, request.session_epoch = session_id, epoch
        opens = epoch == 0
        pair.ask(request, version, differs=differences.NO_SESSIONS if opens else None)
