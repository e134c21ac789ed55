from collections.abc import Callable
from typing import Any

import pytest

from kohort.client.core.errors import IllegalStateError, NoOffsetError
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import EARLIEST, LATEST, OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))


def positions_of(*partitions: TopicPartition) -> Positions:
    positions = Positions()
    positions.set_assigned(partitions)
    return positions


@pytest.fixture(name="positions")
def make_positions() -> Positions:
    return positions_of(A)


def test_without_a_committed_offset_the_default_decides(positions: Positions) -> None:
    positions.committed_found(A, None, EARLIEST)
    assert positions.awaiting_reset() == {A: EARLIEST}
    assert positions.missing_position() == []
    positions.reset_found(A, EARLIEST, 12, 1)
    assert (positions.position(A), positions.awaiting_reset()) == (12, {})


def test_without_both_it_is_an_error_that_names_the_partition(positions: Positions) -> None:
    with pytest.raises(NoOffsetError, match="t-0 has no committed offset") as caught:
        positions.committed_found(A, None, None)
    assert (caught.value.partition, caught.value.offset) == (A, None)
    assert positions.missing_position() == [A]


def test_what_the_user_sought_is_not_overwritten_by_a_late_committed_offset() -> None:
    positions = positions_of(A, B)
    positions.seek(A, 5)
    positions.seek_to(B, LATEST)
    for partition in (A, B):
        positions.committed_found(partition, OffsetAndMetadata(9), EARLIEST)
        positions.committed_found(partition, None, None)
    assert positions.position(A) == 5
    assert positions.awaiting_reset() == {B: LATEST}


def test_an_answer_to_a_reset_that_is_not_wanted_any_more_changes_nothing() -> None:
    positions = positions_of(A, B)
    positions.seek_to(A, EARLIEST)
    positions.seek_to(A, LATEST)
    positions.reset_found(A, EARLIEST, 0)
    assert positions.awaiting_reset() == {A: LATEST}
    positions.seek_to(B, EARLIEST)
    positions.seek(B, 4)
    positions.reset_found(B, EARLIEST, 0)
    assert positions.position(B) == 4


def test_a_time_later_than_all_records_leads_to_the_end(positions: Positions) -> None:
    positions.seek_to(A, 1_700_000_000_000)
    positions.reset_found(A, 1_700_000_000_000, None)
    assert positions.awaiting_reset() == {A: LATEST}


def test_partitions_that_are_kept_keep_everything_and_others_nothing() -> None:
    positions = positions_of(A, B)
    positions.seek(A, 5)
    positions.seek(B, 6)
    positions.pause([A, B])
    fence = positions.state(A).fence
    positions.set_assigned([C, A])
    assert list(positions.assigned) == [C, A]
    assert (positions.position(A), positions.state(A).fence) == (5, fence)
    assert positions.paused() == {A}
    positions.set_assigned([A, B, C])
    assert positions.position(B) is None
    assert positions.paused() == {A}


@pytest.mark.parametrize(
    "change",
    [
        lambda positions: positions.seek(A, 5),
        lambda positions: positions.seek_to(A, EARLIEST),
        lambda positions: positions.forget(A),
        lambda positions: (positions.set_assigned([B]), positions.set_assigned([A, B])),
    ],
    ids=["seek", "seek_to", "forget", "revoked and assigned again"],
)
def test_whatever_moves_a_position_other_than_reading_gives_it_a_new_fence(
    change: Callable[[Positions], object],
) -> None:
    positions = positions_of(A, B)
    positions.seek(A, 5)
    fence, version = positions.state(A).fence, positions.version
    change(positions)
    assert positions.state(A).fence > fence
    assert positions.version > version


def test_reading_on_moves_a_position_and_leaves_its_fence(positions: Positions) -> None:
    positions.seek(A, 5, 1)
    fence, version = positions.state(A).fence, positions.version
    positions.advance(A, 9, 2)
    assert positions.consumed() == {A: OffsetAndMetadata(9, "", 2)}
    assert (positions.state(A).fence, positions.version) == (fence, version)


def test_paused_and_held_partitions_are_not_readable_and_keep_their_positions() -> None:
    positions = positions_of(A, B, C)
    for partition in (A, B, C):
        positions.seek(partition, 5)
    positions.pause([A])
    positions.hold([B, TopicPartition("gone", 0)])
    assert [positions.state(one).is_readable for one in (A, B, C)] == [False, False, True]
    assert positions.paused() == {A}
    positions.resume([A])
    assert positions.state(A).is_readable
    positions.set_assigned([A, B])
    assert positions.state(B).is_readable
    assert positions.position(B) == 5


def test_pausing_partitions_of_which_one_is_not_assigned_pauses_none(positions: Positions) -> None:
    with pytest.raises(IllegalStateError, match="t-2 is not assigned"):
        positions.pause([A, C])
    assert positions.paused() == set()


@pytest.mark.parametrize(
    "ask",
    [
        lambda positions: positions.position(C),
        lambda positions: positions.seek(C, 1),
        lambda positions: positions.seek_to(C, LATEST),
        lambda positions: positions.lag(C),
        lambda positions: positions.high_watermark(C),
    ],
    ids=["position", "seek", "seek_to", "lag", "high_watermark"],
)
def test_to_ask_about_another_s_partition_is_an_error_that_names_it(
    ask: Callable[[Positions], object],
) -> None:
    with pytest.raises(IllegalStateError, match="t-2 is not assigned"):
        ask(positions_of(A))


def test_answers_about_another_s_partition_are_ignored(positions: Positions) -> None:
    positions.committed_found(C, OffsetAndMetadata(1), None)
    positions.reset_found(C, LATEST, 1)
    positions.learned(C, high_watermark=1, last_stable_offset=1)
    assert list(positions.assigned) == [A]


@pytest.mark.parametrize(("reads_committed", "lag"), [(False, 15), (True, 10)])
def test_lag_is_counted_to_where_this_consumer_may_read(reads_committed: bool, lag: int) -> None:
    positions = Positions(reads_committed=reads_committed)
    positions.set_assigned([A])
    assert positions.lag(A) is None
    positions.learned(A, high_watermark=20, last_stable_offset=15)
    assert positions.lag(A) is None
    positions.seek(A, 5)
    assert positions.lag(A) == lag
    positions.learned(A, high_watermark=-1, last_stable_offset=-1)
    assert positions.high_watermark(A) == 20
    assert positions.last_stable(A) == 15
    positions.seek(A, 40)
    assert positions.lag(A) == 0


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        *(((offset,), ValueError, str(offset)) for offset in (-1, 1 << 63, -(1 << 63))),
        *(((offset,), TypeError, "not an int") for offset in (3.0, "3", None, True)),
        ((3, 1 << 31), ValueError, "leader epoch"),
    ],
)
def test_a_place_that_no_record_can_have_is_refused(
    place: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    positions = positions_of(A)
    with pytest.raises(error, match=words):
        positions.seek(A, *place)
    assert positions.position(A) is None


def test_what_any_of_several_readers_wants_is_readable() -> None:
    positions = positions_of(A, B, C)
    for one in (A, B, C):
        positions.seek(one, 0)
    positions.begin_reading(frozenset({A}))
    positions.begin_reading(frozenset({B}))
    assert [positions.state(one).is_readable for one in (A, B, C)] == [True, True, False]
    positions.begin_reading(None)
    assert positions.state(C).is_readable
    positions.end_reading(frozenset({A}))
    positions.end_reading(None)
    assert [positions.state(one).is_readable for one in (A, B, C)] == [False, True, False]
