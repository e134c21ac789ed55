"""What a fetch of a share group acquires (KIP-932): ranges, limits, waiting, gaps in the log."""

import select
import time
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.share import (
    ACCEPT,
    GAP,
    RELEASE,
    SHORT_MS,
    ShareGroup,
    acquired,
    create_topic,
    delete_records,
    errors,
    produce,
)
from tests.interop.same_answers.share_differences import (
    DELETED_WITHIN_A_BATCH,
    RELEASE_WAKES,
    UNKNOWN_ACQUIRE_MODE,
)
from tests.interop.same_answers.share_scenes import Scene
from tests.interop.same_answers.transactions import commit_and_abort, producer

NONE: Final = ErrorCode.NONE

ROUNDS: Final = (
    # Sizes of the batches, and the limits: whole batches.
    ((3, 3, 3, 3), {"max_records": 4}, [0, 5, 1]),
    ((3, 3, 3, 3), {"max_records": 1}, [0, 2, 1]),
    ((10,), {"max_records": 4}, [0, 9, 1]),
    # Ranges of at least that many records, if there are more.
    ((3, 3, 3, 3), {"max_records": 12, "batch_size": 5}, [0, 5, 1, 6, 11, 1]),
    ((1, 1, 1, 1), {"max_records": 4, "batch_size": 3}, [0, 2, 1, 3, 3, 1]),
    ((2, 9, 2), {"max_records": 3, "batch_size": 2}, [0, 1, 1, 2, 10, 1]),
    ((5, 5), {"max_records": 10, "batch_size": 10}, [0, 9, 1]),
    ((5, 5, 5), {"max_records": 15, "batch_size": 1}, [0, 4, 1, 5, 9, 1, 10, 14, 1]),
    # Exactly that many.
    ((10,), {"max_records": 4, "share_acquire_mode": 1}, [0, 3, 1]),
    ((3, 3, 3), {"max_records": 4, "share_acquire_mode": 1, "batch_size": 1}, [0, 3, 1]),
    ((3, 3, 3), {"max_records": 9, "share_acquire_mode": 1, "batch_size": 2}, [0, 8, 1]),
    ((3, 3), {"max_records": 500, "share_acquire_mode": 1}, [0, 5, 1]),
    # Limits in bytes: one batch at least.
    ((5, 5), {"max_bytes": 1}, [0, 4, 1]),
    ((5, 5), {"max_bytes": 200}, [0, 4, 1]),
)


@pytest.fixture
def scene(pair: Pair) -> Scene:
    return Scene(pair)


@pytest.mark.parametrize(("sizes", "limits", "expected"), ROUNDS)
def test_ranges(
    pair: Pair, sizes: tuple[int, ...], limits: dict[str, Value], expected: list[int]
) -> None:
    """Until all is acquired, and once more after it was released."""
    scene = Scene(pair, *sizes)
    found = scene.fetch(scene.one, **limits)
    assert found == expected
    rounds = [found]
    while len(rounds) < len(sizes) + 2:
        found = scene.fetch(scene.one, max_wait_ms=SHORT_MS, **limits)
        if not found:
            break
        rounds.append(found)
    scene.check(scene.one, NONE, (1, sum(sizes) - 1, [RELEASE]))
    for _ in rounds:
        scene.fetch(scene.one, max_wait_ms=SHORT_MS, **limits)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("field", ["min_bytes", "max_records"])
def test_limits_of_zero_and_below(scene: Scene, field: str, mode: int) -> None:
    fields: dict[str, Value] = {"max_wait_ms": 300, "share_acquire_mode": mode}
    scene.one.fetch([scene.place], max_records=0)
    for value in (0, -1, -(2**31)):
        scene.one.fetch(**{**fields, field: value})


@pytest.mark.parametrize("max_wait_ms", [0, -1, -(2**31)])
def test_no_wait(scene: Scene, max_wait_ms: int) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.one.fetch(max_wait_ms=max_wait_ms)


def test_no_bytes(scene: Scene) -> None:
    assert acquired(scene.one.fetch([scene.place], max_bytes=0).kafka) == []
    assert scene.fetch(scene.one) == [0, 9, 1]


def test_a_session_without_partitions_does_not_wait(scene: Scene) -> None:
    began_s = time.monotonic()
    scene.one.fetch()
    scene.one.fetch()
    assert time.monotonic() - began_s < 10


def test_split_ranges(scene: Scene) -> None:
    """Their available offsets come all at once, or exactly as many as allowed."""
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.check(scene.one, NONE, (0, 2, [RELEASE]), (4, 9, [RELEASE]))
    assert scene.fetch(scene.one, max_records=4) == [0, 2, 2, 4, 9, 2]
    scene.check(scene.one, NONE, (0, 9, [RELEASE] * 3 + [ACCEPT] + [RELEASE] * 6))
    assert scene.fetch(scene.one, max_records=4, share_acquire_mode=1) == [0, 2, 3, 4, 4, 3]
    assert scene.fetch(scene.one, max_records=2) == [5, 9, 3]


def test_modes_alternate(scene: Scene) -> None:
    """The range of a record limit is the whole batch."""
    assert scene.fetch(scene.one, max_records=3, share_acquire_mode=1) == [0, 2, 1]
    assert scene.fetch(scene.one, max_records=1) == [3, 9, 1]
    scene.check(scene.one, NONE, (0, 9, [RELEASE]))
    assert scene.fetch(scene.one, max_records=1) == [0, 9, 2]


def test_two_partitions(pair: Pair) -> None:
    """Which of them begins is decided by a hash table in Kafka."""
    topic = create_topic(pair, partitions=2)
    group = ShareGroup(pair, topic)
    places = [(topic, 0), (topic, 1)]
    for number in range(2):
        produce(pair, topic, 2, partition=number)
    with group.session() as session:
        # Until Kafka has loaded both.
        while any(len(acquired(answer)) < 2 for answer in session.peek(places)):
            session.close()
            pair.settle()
        session.acknowledge({place: [(0, 1, [ACCEPT])] for place in places})
        for number in range(2):
            produce(pair, topic, 4, 4, partition=number)
        for _ in range(2):
            answers = session.peek(max_records=5)
            for answer in answers:
                assert [(first, last) for _, first, last, _ in acquired(answer)] == [(2, 9)]


def test_records_of_several_batches_are_sent_whole(pair: Pair) -> None:
    """Also those that are not acquired."""
    scene = Scene(pair, 3, 3, 3)
    assert scene.fetch(scene.one, max_records=5, share_acquire_mode=1) == [0, 4, 1]
    scene.check(scene.one, NONE, (0, 4, [ACCEPT, RELEASE, ACCEPT, RELEASE, RELEASE]))
    assert scene.fetch(scene.one, max_records=2, share_acquire_mode=1) == [1, 1, 2, 3, 3, 2]
    assert scene.fetch(scene.two) == [4, 4, 2, 5, 5, 1, 6, 8, 1]


def test_the_limit_of_locks(pair: Pair) -> None:
    scene = Scene(pair, 60, 60, 60, share_partition_max_record_locks="100")
    assert scene.fetch(scene.one) == [0, 119, 1]
    assert scene.fetch(scene.two, max_wait_ms=SHORT_MS) == []
    scene.check(scene.one, NONE, (60, 119, [ACCEPT]))
    assert scene.fetch(scene.two, max_wait_ms=SHORT_MS) == []
    scene.check(scene.one, NONE, (30, 40, [RELEASE]))
    assert scene.fetch(scene.two, max_wait_ms=SHORT_MS) == [30, 40, 2]
    scene.check(scene.one, NONE, (0, 29, [ACCEPT]))
    assert scene.fetch(scene.two, max_wait_ms=SHORT_MS, max_records=20) == [120, 179, 1]


@pytest.mark.parametrize("mode", [0, 1])
def test_the_limit_of_locks_and_of_records(pair: Pair, mode: int) -> None:
    scene = Scene(pair, *[30] * 6, share_partition_max_record_locks="100")
    scene.fetch(scene.one, max_records=40, share_acquire_mode=mode)
    for _ in range(7):
        scene.fetch(scene.one, max_wait_ms=SHORT_MS, max_records=40, share_acquire_mode=mode)
    scene.acknowledge(scene.one, (0, 9, [ACCEPT]))
    scene.fetch(scene.one, max_wait_ms=SHORT_MS, max_records=40, share_acquire_mode=mode)
    scene.group.configure(share_partition_max_record_locks="200")
    scene.fetch(scene.one, max_wait_ms=SHORT_MS, max_records=40, share_acquire_mode=mode)


def test_acquire_modes(scene: Scene) -> None:
    """v1 has none."""
    assert scene.fetch(scene.one, max_records=4, version=1) == [0, 9, 1]
    scene.check(scene.one, NONE, (0, 9, [RELEASE]), version=1)
    scene.two.fetch([scene.place], share_acquire_mode=2, differs=UNKNOWN_ACQUIRE_MODE)


# Waiting.


def test_an_append_wakes(pair: Pair) -> None:
    scene = Scene(pair, 1)
    assert scene.fetch(scene.one) == [0, 0, 1]
    waiting = scene.one.send()
    assert waiting.is_parked()
    produce(pair, scene.topic, 3)
    assert acquired(waiting.answers().kafka) == [(0, 1, 3, 1)]


def test_one_of_two_that_wait_gets_the_record(pair: Pair) -> None:
    scene = Scene(pair, 1)
    assert scene.fetch(scene.one) == [0, 0, 1]
    scene.fetch(scene.two, max_wait_ms=SHORT_MS)
    waiting = [session.send(max_wait_ms=2_000) for session in (scene.one, scene.two)]
    assert all(one.is_parked() for one in waiting)
    produce(pair, scene.topic, 3)
    found = [one.uncompared() for one in waiting]
    for name in ("kafka", "kohort"):
        parts = [acquired(getattr(answers, name)) for answers in found]
        assert sorted(parts) == [[], [(0, 1, 3, 1)]]


def test_fewer_bytes_than_wanted(pair: Pair) -> None:
    """What is there is acquired when the time is over."""
    scene = Scene(pair, 1)
    began_s = time.monotonic()
    assert scene.fetch(scene.one, min_bytes=10_000, max_wait_ms=700) == [0, 0, 1]
    assert time.monotonic() - began_s > 0.6


def test_the_end_of_a_lock_wakes(pair: Pair) -> None:
    scene = Scene(pair, 3, share_record_lock_duration_ms="1000")
    assert scene.fetch(scene.one) == [0, 2, 1]
    waiting = scene.two.send([scene.place])
    assert waiting.is_parked()
    assert acquired(waiting.answers().kafka) == [(0, 0, 2, 2)]


def test_a_release_wakes(pair: Pair) -> None:
    scene = Scene(pair, 3)
    assert scene.fetch(scene.one) == [0, 2, 1]
    began_s = time.monotonic()
    waiting = scene.two.send([scene.place], max_wait_ms=int(RELEASE_WAKES.kafka_s * 1000))
    assert waiting.is_parked()
    scene.check(scene.one, NONE, (0, 2, [RELEASE]))
    kafka, kohort = waiting.line.sockets()
    assert pair.are_both_kafka or select.select([kafka, kohort], [], [], 20)[0] == [kohort]
    assert acquired(waiting.answers().kafka) == [(0, 0, 2, 2)]
    assert time.monotonic() - began_s > RELEASE_WAKES.kafka_s - 0.1


def test_an_acknowledgement_waits_with_its_fetch(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    waiting = scene.one.send(acks={scene.place: [(0, 9, [ACCEPT])]}, max_wait_ms=900)
    assert waiting.is_parked(for_s=0.3)
    assert errors(waiting.answers().kafka) == [NONE, NONE]


# Gaps.


def test_deleted_records(pair: Pair) -> None:
    """Those that are acquired stay with their owner."""
    scene = Scene(pair, 5, 5, 5)
    assert scene.fetch(scene.one, max_records=5) == [0, 4, 1]
    scene.check(scene.one, NONE, (0, 1, [RELEASE]))
    delete_records(pair, scene.topic, 7)
    # The fetch that notices it is empty in Kafka.
    scene.two.peek([scene.place], max_wait_ms=SHORT_MS)
    scene.check(scene.one, NONE, (2, 3, [ACCEPT]))
    scene.check(scene.one, NONE, (4, 4, [RELEASE]))
    scene.check(scene.one, NONE, (0, 1, [ACCEPT]))


def test_records_deleted_within_a_batch(pair: Pair) -> None:
    scene = Scene(pair, 5, 5)
    assert scene.fetch(scene.one, max_records=1) == [0, 4, 1]
    scene.check(scene.one, NONE, (0, 4, [RELEASE]))
    delete_records(pair, scene.topic, 7)
    # The fetch that notices it is empty in Kafka.
    scene.two.peek([scene.place], max_wait_ms=SHORT_MS, max_records=-1)
    assert scene.fetch(scene.one, differs=DELETED_WITHIN_A_BATCH) == [5, 9, 1]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions(pair: Pair, isolation: str) -> None:
    """Markers are acquired. With read_committed, what was aborted is archived, and nothing is read
    of an open transaction.
    """
    scene = Scene(pair, 1, share_isolation_level=isolation)
    some = producer(pair)
    assert scene.fetch(scene.one) == [0, 0, 1]
    for number, is_committed in enumerate((True, False, True)):
        some.add({scene.topic: [0]})
        some.send(scene.topic, 2 * number, count=2)
        scene.fetch(scene.one, max_wait_ms=SHORT_MS)
        some.end(commit=is_committed)
        scene.fetch(scene.one, max_wait_ms=SHORT_MS)
    produce(pair, scene.topic, 1)
    scene.fetch(scene.one)
    scene.acknowledge(scene.one, (0, 10, [RELEASE]))
    scene.acknowledge(scene.one, (0, 3, [RELEASE]), (7, 10, [RELEASE]))
    scene.fetch(scene.two, max_wait_ms=SHORT_MS)


def test_transactions_in_one_answer(pair: Pair) -> None:
    scene = Scene(pair, 1, share_isolation_level="read_committed")
    commit_and_abort(pair, scene.topic)
    produce(pair, scene.topic, 1)
    assert scene.fetch(scene.one) == [0, 3, 1, 6, 7, 1]
    for batches, error in (
        ((4, 4, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        ((3, 3, [GAP]), NONE),
        ((0, 2, [ACCEPT]), NONE),
        ((6, 7, [GAP, ACCEPT]), NONE),
    ):
        scene.check(scene.one, error, batches)


def test_a_fetch_that_begins_with_aborted_records(pair: Pair) -> None:
    scene = Scene(pair, 1, share_isolation_level="read_committed")
    assert scene.fetch(scene.one) == [0, 0, 1]
    some = producer(pair)
    some.add({scene.topic: [0]})
    some.send(scene.topic, count=3)
    some.end(commit=False)
    assert scene.fetch(scene.one, max_records=1, max_wait_ms=SHORT_MS) == []


@pytest.mark.parametrize("max_records", [-1, 0, 1, 2, 500])
def test_aborted_records_that_another_member_holds(pair: Pair, max_records: int) -> None:
    """They are archived when they are read again, whoever acquired them."""
    scene = Scene(pair, 1)
    scene.two.peek([scene.place], max_records=-1, max_wait_ms=SHORT_MS)
    some = producer(pair)
    some.add({scene.topic: [0]})
    some.send(scene.topic, count=5)
    assert scene.fetch(scene.one) == [0, 5, 1]
    some.end(commit=False)
    some.settle()
    produce(pair, scene.topic, 2)
    scene.group.configure(share_isolation_level="read_committed")
    scene.check(scene.one, NONE, (1, 1, [RELEASE]))
    scene.two.fetch(max_wait_ms=SHORT_MS, max_records=max_records)
    scene.acknowledge(scene.one, (2, 2, [RELEASE]))
    scene.fetch(scene.two, max_wait_ms=SHORT_MS)


def test_an_isolation_level_that_changes(pair: Pair) -> None:
    """What was acquired above the last stable offset stays until that passes."""
    scene = Scene(pair, 1)
    some = producer(pair).begun(scene.topic)
    produce(pair, scene.topic, 2)
    assert scene.fetch(scene.one) == [0, 3, 1]
    scene.check(scene.one, NONE, (0, 3, [RELEASE]))
    scene.group.configure(share_isolation_level="read_committed")
    scene.fetch(scene.two, max_wait_ms=SHORT_MS)
    scene.acknowledge(scene.two, (0, 0, [ACCEPT]))
    some.end(commit=False)
    scene.fetch(scene.two, max_wait_ms=SHORT_MS)
