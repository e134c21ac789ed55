from hypothesis import given
from hypothesis import strategies as st

from kohort.client.core.lanes import DoneOffsets
from kohort.client.core.offsets import OffsetAndMetadata


def begun(*offsets: int) -> DoneOffsets:
    made = DoneOffsets()
    made.begin([(offset, 7) for offset in offsets])
    return made


def test_the_position_moves_past_all_that_was_done_before_the_gap_closed() -> None:
    done = begun(3, 4, 9, 11)
    done.finish(9)
    done.finish(4)
    done.finish(3)
    assert done.position == OffsetAndMetadata(10, "", 7)
    assert done.open_count == 1


@given(st.lists(st.integers(0, 1_000), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_everything_before_the_position_is_done_and_the_record_at_it_is_not(
    offsets: list[int], chance: object
) -> None:
    offsets.sort()
    done = begun(*offsets)
    left = list(offsets)
    chance.shuffle(left)  # type: ignore[attr-defined]  # Hypothesis' own Random.
    while left:
        done.finish(left.pop())
        position = -1 if done.position is None else done.position.offset
        assert all(one >= position for one in left)
        behind = [one for one in offsets if one >= position]
        assert done.open_count == len(behind)
        assert not behind or behind[0] in left
