"""Acknowledgements of share groups (KIP-932): what is refused, and what becomes of the records."""

import time
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.share import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    SHORT_MS,
    Batch,
    ShareGroup,
    create_topic,
    errors,
)
from tests.interop.same_answers.share_differences import (
    BEYOND_AN_EMPTY_WINDOW,
    LOADED_BY_ACKNOWLEDGEMENT,
)
from tests.interop.same_answers.share_scenes import Scene

NONE: Final = ErrorCode.NONE
INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST
INVALID_STATE: Final = ErrorCode.INVALID_RECORD_STATE

MALFORMED: Final[tuple[list[Batch], ...]] = (
    [(5, 4, [ACCEPT])],
    [(-2, 4, [ACCEPT])],
    [(0, 4, [])],
    [(0, 4, [ACCEPT, ACCEPT])],
    [(0, 4, [ACCEPT] * 6)],
    [(0, 4, [-1])],
    [(0, 4, [5])],
    [(0, 0, [RENEW])],
    [(0, 4, [ACCEPT]), (3, 5, [ACCEPT])],
    [(5, 6, [ACCEPT]), (0, 1, [ACCEPT])],
    [(0, 1, [ACCEPT]), (2, 3, [9])],
    [(0, 1, [ACCEPT]), (3, 2, [ACCEPT])],
    [(0, 2**62, [ACCEPT, ACCEPT])],
    [(-1, 2**63 - 1, [ACCEPT, ACCEPT])],
)
OUTSIDE: Final[tuple[tuple[list[Batch], ErrorCode], ...]] = (
    ([(0, 0, [ACCEPT])], NONE),
    ([(0, 1, [REJECT])], NONE),
    ([(-1, 0, [ACCEPT])], NONE),
    ([(10, 10, [ACCEPT])], INVALID_REQUEST),
    ([(8, 10, [ACCEPT])], INVALID_REQUEST),
    ([(2**62, 2**63 - 1, [ACCEPT])], INVALID_REQUEST),
    ([(4, 4, [ACCEPT])], INVALID_STATE),
    ([(4, 5, [ACCEPT])], INVALID_STATE),
    ([(3, 4, [ACCEPT])], INVALID_STATE),
    ([(6, 6, [ACCEPT])], INVALID_STATE),
    ([(5, 6, [ACCEPT])], INVALID_STATE),
    ([(6, 9, [ACCEPT])], INVALID_STATE),
    ([(7, 8, [ACCEPT]), (8, 9, [ACCEPT])], INVALID_STATE),
    ([(2, 2, [ACCEPT]), (4, 4, [ACCEPT])], INVALID_STATE),
)
"""Of a window from 2 to 9, of which 4 is accepted and 6 is released."""


@pytest.fixture
def scene(pair: Pair) -> Scene:
    return Scene(pair)


def test_malformed_batches(scene: Scene) -> None:
    """All are refused, and nothing changes."""
    assert scene.fetch(scene.one) == [0, 9, 1]
    for batches in MALFORMED:
        scene.check(scene.one, INVALID_REQUEST, *batches)
    scene.check(scene.one, INVALID_REQUEST, (0, 4, [RENEW]), version=1)
    scene.check(scene.one, NONE, (0, 9, [ACCEPT]))


def test_the_same_batches_within_a_fetch(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    for batches in MALFORMED:
        answers = scene.one.fetch(acks={scene.place: batches}, max_wait_ms=SHORT_MS)
        assert errors(answers.kafka) == [NONE, INVALID_REQUEST], batches
    answers = scene.one.fetch(acks={scene.place: [(0, 9, [ACCEPT])]}, max_wait_ms=SHORT_MS)
    assert errors(answers.kafka) == [NONE, NONE]


def test_offsets_that_are_not_acquired(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.check(scene.one, NONE, (0, 1, [ACCEPT]))
    scene.check(scene.one, NONE, (4, 4, [ACCEPT]), (6, 6, [RELEASE]))
    for batches, error in OUTSIDE:
        scene.check(scene.one, error, *batches)
    scene.check(scene.one, NONE, (0, 2, [ACCEPT]))


def test_an_empty_window(scene: Scene) -> None:
    assert scene.fetch(scene.two) == [0, 9, 1]
    scene.check(scene.two, NONE, (0, 9, [ACCEPT]))
    for batch, error in (
        ((0, 9, [ACCEPT]), NONE),
        ((10, 10, [ACCEPT]), INVALID_STATE),
        ((20, 29, [ACCEPT]), INVALID_STATE),
    ):
        scene.check(scene.two, error, batch)
    scene.acknowledge(scene.two, (9, 10, [ACCEPT]), differs=BEYOND_AN_EMPTY_WINDOW)


def test_an_acknowledgement_without_a_fetch(pair: Pair) -> None:
    topic = create_topic(pair)
    group = ShareGroup(pair)
    group.join("one", topic)
    with group.session() as session:
        session.fetch(max_wait_ms=0)
        ack = {(topic, 0): [(0, 0, [ACCEPT])]}
        session.acknowledge(ack, differs=LOADED_BY_ACKNOWLEDGEMENT)


def test_records_of_another_member(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.two.fetch([scene.place], max_wait_ms=SHORT_MS)
    for type_ in (GAP, ACCEPT, RELEASE, REJECT):
        scene.check(scene.two, INVALID_STATE, (0, 9, [type_]))
    # Once the range is split the error is of an offset.
    scene.check(scene.one, NONE, (3, 3, [ACCEPT]))
    scene.check(scene.two, INVALID_STATE, (0, 0, [ACCEPT]))
    scene.check(scene.two, INVALID_STATE, (3, 3, [ACCEPT]))
    scene.check(scene.two, INVALID_STATE, (0, 9, [RENEW]), is_renew_ack=True)
    scene.check(scene.one, NONE, (0, 2, [ACCEPT]), (4, 9, [ACCEPT]))


@pytest.mark.parametrize("types", [[GAP], [ACCEPT], [RELEASE], [REJECT]])
def test_each_type(scene: Scene, types: list[int]) -> None:
    """Only what is released is delivered again."""
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.check(scene.one, NONE, (2, 4, types))
    expected = [2, 4, 2] if types == [RELEASE] else []
    assert scene.fetch(scene.two, max_wait_ms=SHORT_MS) == expected


def test_one_type_for_each_offset(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE, RELEASE, ACCEPT, RELEASE, ACCEPT, ACCEPT]
    scene.check(scene.one, NONE, (0, 9, types))
    assert scene.fetch(scene.two) == [1, 1, 2, 4, 5, 2, 7, 7, 2]
    scene.check(scene.two, NONE, (1, 1, [ACCEPT]), (4, 5, [RELEASE]), (7, 7, [REJECT]))
    # 2 to 3 are finished: a batch may begin there.
    scene.check(scene.one, INVALID_STATE, (2, 4, [ACCEPT]))
    assert scene.fetch(scene.one) == [4, 5, 3]
    scene.check(scene.one, NONE, (2, 5, [ACCEPT]))


def test_a_record_is_archived_at_the_limit(pair: Pair) -> None:
    scene = Scene(pair, 4, share_delivery_count_limit="2")
    assert scene.fetch(scene.one) == [0, 3, 1]
    scene.check(scene.one, NONE, (0, 3, [RELEASE]))
    assert scene.fetch(scene.one) == [0, 3, 2]
    scene.check(scene.one, NONE, (0, 1, [RELEASE]), (3, 3, [RELEASE]))
    assert scene.fetch(scene.one, max_wait_ms=SHORT_MS) == []
    scene.check(scene.one, NONE, (0, 2, [ACCEPT]))
    scene.check(scene.one, NONE, (3, 3, [ACCEPT]))


@pytest.mark.parametrize("start", [2, 3])
def test_a_limit_that_is_lowered(pair: Pair, start: int) -> None:
    """Of a record that is acquired the release archives; one that is available comes once more."""
    scene = Scene(pair, 4, share_delivery_count_limit="5")
    for count in range(1, start + 1):
        assert scene.fetch(scene.one) == [0, 3, count]
        if count < start:
            scene.check(scene.one, NONE, (0, 3, [RELEASE]))
    scene.group.configure(share_delivery_count_limit="2")
    scene.acknowledge(scene.one, (0, 0, [RELEASE]))
    for _ in range(6):
        found = scene.fetch(scene.one, max_wait_ms=SHORT_MS)
        for first, last in zip(found[::3], found[1::3], strict=True):
            scene.acknowledge(scene.one, (first, last, [RELEASE]))


@pytest.mark.parametrize("limit", [3, 4])
def test_records_that_have_reached_a_lowered_limit_are_available(pair: Pair, limit: int) -> None:
    scene = Scene(pair, 13, share_delivery_count_limit="6")
    for count in range(1, 4):
        assert scene.fetch(scene.one) == [0, 12, count]
        scene.check(scene.one, NONE, (0, 12, [RELEASE]))
    scene.group.configure(share_delivery_count_limit=str(limit))
    found = scene.fetch(scene.one)
    assert found == ([0, 2, 4] if limit == 3 else [0, 0, 4])
    scene.fetch(scene.two)


@pytest.mark.parametrize("ends", ["closed", "disconnected", "timed out"])
def test_a_limit_that_is_lowered_before_a_lock_ends(pair: Pair, ends: str) -> None:
    """The records are archived."""
    scene = Scene(pair, 4, share_record_lock_duration_ms="2000")
    assert scene.fetch(scene.one) == [0, 3, 1]
    scene.check(scene.one, NONE, (0, 3, [RELEASE]))
    assert scene.fetch(scene.one) == [0, 3, 2]
    # A partition's first answer in a session tells whether a broker knows of the disconnect.
    assert scene.fetch(scene.two, max_wait_ms=0) == []
    scene.group.configure(share_delivery_count_limit="2")
    if ends == "closed":
        scene.one.close()
    elif ends == "disconnected":
        scene.one.line.close()
    wait_ms = 3_000 if ends == "timed out" else 500
    assert scene.fetch(scene.two, max_wait_ms=wait_ms) == []


def test_renewed_locks(pair: Pair) -> None:
    scene = Scene(pair, 10, share_record_lock_duration_ms="1000")
    assert scene.fetch(scene.one) == [0, 9, 1]
    for _ in range(4):
        time.sleep(0.4)
        scene.check(scene.one, NONE, (2, 5, [RENEW]), is_renew_ack=True)
    # The lock of the others has ended.
    assert scene.fetch(scene.two) == [0, 1, 2, 6, 9, 2]
    scene.check(scene.one, INVALID_STATE, (0, 0, [RENEW]), is_renew_ack=True)
    scene.check(scene.one, NONE, (2, 5, [ACCEPT]), is_renew_ack=True)
    scene.check(scene.two, NONE, (0, 1, [ACCEPT]), (6, 9, [ACCEPT]))


def test_renewal_is_switched_off(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    scene.group.configure(share_renew_acknowledge_enable="false")
    batches = [(0, 0, [ACCEPT]), (1, 1, [RENEW])]
    scene.check(scene.one, INVALID_STATE, *batches, is_renew_ack=True)
    scene.group.configure(share_renew_acknowledge_enable="true")
    scene.check(scene.one, NONE, *batches, is_renew_ack=True)


def test_a_fetch_that_renews_gets_no_records(scene: Scene) -> None:
    assert scene.fetch(scene.one, max_records=1, share_acquire_mode=1) == [0, 0, 1]
    nothing: dict[str, Value] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renewal = {scene.place: [(0, 0, [RENEW])]}
    for field in nothing:
        answers = scene.one.fetch(acks=renewal, is_renew_ack=True, **{**nothing, field: 1})
        assert answers.kafka.error_code == INVALID_REQUEST
    answers = scene.one.fetch(acks=renewal, is_renew_ack=True, **nothing)
    assert errors(answers.kafka) == [NONE, NONE]
    scene.one.fetch(acks={scene.place: [(0, 0, [ACCEPT])]}, is_renew_ack=True, **nothing)


def test_a_lock_that_has_ended(pair: Pair) -> None:
    scene = Scene(pair, 10, share_record_lock_duration_ms="1000")
    assert scene.fetch(scene.one) == [0, 9, 1]
    assert scene.fetch(scene.two) == [0, 9, 2]
    scene.check(scene.one, INVALID_STATE, (0, 9, [ACCEPT]))
    scene.check(scene.two, NONE, (0, 9, [ACCEPT]))
