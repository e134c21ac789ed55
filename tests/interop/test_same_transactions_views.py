"""What is told of transactions, and what readers of either isolation level see, is as at Kafka."""

from collections.abc import Iterable

import pytest

from kohort.protocol.messages.transactions import TopicRequest
from tests.interop.same_answers import differences
from tests.interop.same_answers.deliberate import Difference
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    END,
    NOWHERE,
    START,
    TIME_MS,
    Topic,
    create_topic,
    fetch_request,
    offsets_request,
    produce,
)
from tests.interop.same_answers.scenes import batch as plain_batch
from tests.interop.same_answers.transactions import (
    Producer,
    describe_producers,
    producer,
    write_markers,
)
from tests.support import messages as m

LATEST_TIME = -3
EARLIEST_LOCAL = -4
TIMES = (END, START, LATEST_TIME, EARLIEST_LOCAL, 0, TIME_MS, TIME_MS + 1001)
FETCH_VERSIONS = range(4, 19)
LIST_VERSIONS = range(2, 12)


def ids_in_every_state(pair: Pair, topic: Topic) -> dict[str, Producer]:
    made = {
        name: producer(pair)
        for name in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "abort of nothing")
    }
    for name, one in made.items():
        if name in {"Ongoing", "CompleteCommit", "CompleteAbort"}:
            one.begun(topic)
        if name.startswith("Complete"):
            one.end(3, commit=name == "CompleteCommit")
    made["abort of nothing"].end(5, commit=False)
    return made


def test_describe_transactions(pair: Pair, transaction_topic: Topic) -> None:
    ids = [one.id for one in ids_in_every_state(pair, transaction_topic).values()]
    for asked in ([], ids, ["no such id", ids[1], ids[1], "", ids[0], "no such id"], ids[::-1]):
        pair.ask(m.DescribeTransactionsRequest(transactional_ids=asked), 0)


def test_list_transactions(pair: Pair, transaction_topic: Topic) -> None:
    made = ids_in_every_state(pair, transaction_topic)
    about = [one.id for one in made.values()]

    def ask(version: int, differs: Difference | None = None, **filters: Value) -> None:
        request = m.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        for name, value in filters.items():
            setattr(request, name, value)
        pair.ask(request, version, about=about, differs=differs)

    states = (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence", "ongoing", "", "Nonsense"),
    )
    pids = [made["Ongoing"].pid, made["Empty"].pid, made["Ongoing"].strange_pid]
    for version in (0, 1, 2):
        ask(version)
        for state in states:
            ask(version, state_filters=[state])
        ask(version, state_filters=["Empty", "Ongoing", "Nonsense", "Nonsense"])
        ask(version, producer_id_filters=pids)
        ask(version, producer_id_filters=[made["Ongoing"].strange_pid])
        ask(version, producer_id_filters=pids, state_filters=["Ongoing"])
    for version in (1, 2):
        for duration_ms in (-2, -1, 0, 3_600_000):
            ask(version, duration_filter=duration_ms)
    name = made["Ongoing"].id
    for pattern in (
        *(None, "", name, name[:-1], f"{name[:-1]}.", ".*", "txn-.*", "TXN-.*"),
        *("(", "[", "*", "txn-[0-9a-f]+", "no|txn-.*", "^txn-.*$", r"\w+-\w+"),
        *("(?i)TXN-.*", "a{2", r"\p{L}+-.*", "(?P<name>.*)", "(?=a)", "(a)\\1", "a**"),
    ):
        ask(2, transactional_id_pattern=pattern)
        ask(2, transactional_id_pattern=pattern, state_filters=["Empty", "Nonsense"])


def test_describe_producers(pair: Pair) -> None:
    topic = create_topic(pair, partitions=3)
    one, two = producer(pair), producer(pair)
    describe_producers(pair, topic, 0, 1, 2)
    one.begun(topic)
    two.begun(topic)
    two.send(topic, 1)
    describe_producers(pair, topic, 0, 1, 2, 3, 0)
    one.end(3)
    two.end(5, commit=False)
    one.produce(topic, {1: one.batch(0, is_transactional=False)}, 9)
    describe_producers(pair, topic, 0, 1, 2)
    two.send(topic, 0, 12, count=3)
    describe_producers(pair, topic, 0, 1, 2)
    topics = [
        TopicRequest(name=name, partition_indexes=[0])
        for name in (NOWHERE.name, "not/legal", "", topic.name)
    ]
    for asked in ([], topics, [TopicRequest(name=topic.name, partition_indexes=[])]):
        pair.ask(m.DescribeProducersRequest(topics=asked), 0)


def read_everywhere(
    pair: Pair,
    topic: Topic,
    last: int,
    *,
    versions: Iterable[int] = (12,),
    times: Iterable[int] = TIMES,
) -> None:
    """Compare what there is to read from every offset, and every time, at both levels."""
    for isolation_level in (0, 1):
        for version in versions:
            for offset in range(-1, last + 2):
                request = fetch_request(topic, offset, isolation_level=isolation_level)
                pair.ask(request, version, differs=differences.LISTED_ABORTED_TRANSACTIONS)
        for timestamp in times:
            offsets = offsets_request(topic, timestamp)
            offsets.isolation_level = isolation_level
            pair.ask(offsets, 11)


def test_reading_while_transactions_open_and_end(pair: Pair) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    produce(pair, topic, plain_batch(b"a", b"b"))
    one.send(topic, 0, 12, count=2)
    read_everywhere(pair, topic, 4)
    two.send(topic, 0, 12, count=3)
    produce(pair, topic, plain_batch(b"c"))
    one.send(topic, 2, 12)
    read_everywhere(pair, topic, 9)
    two.end(5, commit=False)
    read_everywhere(pair, topic, 10)
    one.end(5, commit=True)
    read_everywhere(pair, topic, 11)
    one.send(topic, 0, 12)
    one.end(5, commit=False)
    two.send(topic, 0, 12)
    read_everywhere(pair, topic, 14)
    two.end(5, commit=True)
    read_everywhere(pair, topic, 15, versions=(4, 7, 12, 18))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_every_version_of_fetch(pair: Pair, version: int) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    one.send(topic, 0, 12)
    one.end(5, commit=False)
    two.send(topic, 0, 12)
    two.end(5)
    one.send(topic, 0, 12)
    for isolation_level in (0, 1):
        for offset in range(7):
            pair.ask(fetch_request(topic, offset, isolation_level=isolation_level), version)


def test_every_version_of_list_offsets(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    one = producer(pair)
    produce(pair, topic, plain_batch(b"a", b"b", b"c"))
    one.send(topic, 0, 12, count=5)
    for version in LIST_VERSIONS:
        for isolation_level in (0, 1):
            for timestamp in (END, START, LATEST_TIME, EARLIEST_LOCAL, 0, TIME_MS + 2500):
                request = offsets_request(topic, timestamp, 0, 1)
                request.isolation_level = isolation_level
                if (version >= 7 or timestamp != LATEST_TIME) and (
                    version >= 8 or timestamp != EARLIEST_LOCAL
                ):
                    pair.ask(request, version)


def test_levels_that_do_not_exist(pair: Pair, transaction_topic: Topic) -> None:
    for isolation_level in (2, -1):
        request = offsets_request(transaction_topic, END)
        request.isolation_level = isolation_level
        pair.ask(request, 11, differs=differences.UNKNOWN_ISOLATION_LEVEL)
        fetch = fetch_request(transaction_topic, isolation_level=isolation_level)
        pair.ask(fetch, 12, differs=differences.UNKNOWN_ISOLATION_LEVEL)


def test_a_reader_of_committed_records_waits_for_the_marker(pair: Pair) -> None:
    topic = create_topic(pair)
    one, reader = producer(pair), pair.open()
    one.send(topic, 0, 12)
    for commit in (True, False):
        request = fetch_request(topic, max_wait_ms=20_000, min_bytes=1, isolation_level=1)
        if not commit:
            request.topics[0].partitions[0].fetch_offset = 4
        waiting = reader.send(request, 12)
        assert waiting.is_parked()
        one.send(topic, 1, 12)
        produce(pair, topic, plain_batch(b"undecided as well"))
        assert waiting.is_parked()
        one.end(5, commit=commit)
        waiting.uncompared()
        pair.ask(fetch_request(topic, isolation_level=1), 12)
        one.send(topic, 0, 12)


def test_records_are_deleted_from_under_a_transaction(pair: Pair) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    one.send(topic, 0, 12, count=3)
    two.send(topic, 0, 12)
    produce(pair, topic, plain_batch(b"a"))
    for start, differs in ((1, differences.STABLE_BELOW_THE_START), (3, None), (4, None)):
        partition = m.DeleteRecordsPartition(partition_index=0, offset=start)
        asked = m.DeleteRecordsTopic(name=topic.name, partitions=[partition])
        pair.ask(m.DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), 2)
        for isolation_level in (0, 1):
            request = fetch_request(topic, start, isolation_level=isolation_level)
            pair.ask(request, 12, differs=differs)
    describe_producers(pair, topic)
    two.end(5, commit=False)
    one.end(5, commit=False)
    for isolation_level in (0, 1):
        for offset in range(4, 8):
            pair.ask(fetch_request(topic, offset, isolation_level=isolation_level), 12)
    describe_producers(pair, topic)


def test_markers_of_nothing_change_nothing_for_readers(pair: Pair) -> None:
    topic = create_topic(pair)
    one, two = producer(pair), producer(pair)
    one.send(topic, 0, 12)
    pair.ask(write_markers(two.marker({topic: [0]}), two.marker({topic: [0]}, commit=True)), 2)
    read_everywhere(pair, topic, 4, times=(END,))
    one.end(5, commit=False)
    pair.ask(write_markers(one.marker({topic: [0]})), 2)
    read_everywhere(pair, topic, 5, times=(END,))
