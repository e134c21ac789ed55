"""The transition table, walked."""

import itertools

import pytest

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.states import LEGAL_PREVIOUS, ClassicState
from kohort.groups.config import GroupConfig
from kohort.groups.group import Group
from kohort.groups.requests import Now

EMPTY = ClassicState.EMPTY
PREPARING = ClassicState.PREPARING_REBALANCE
COMPLETING = ClassicState.COMPLETING_REBALANCE
STABLE = ClassicState.STABLE
DEAD = ClassicState.DEAD

LEGAL = {
    (PREPARING, EMPTY),
    (STABLE, PREPARING),
    (COMPLETING, PREPARING),
    (EMPTY, PREPARING),
    (PREPARING, COMPLETING),
    (COMPLETING, STABLE),
    (EMPTY, DEAD),
    (PREPARING, DEAD),
    (COMPLETING, DEAD),
    (STABLE, DEAD),
}
"""(from, to), written down a second time on purpose."""


def a_group_in(state: ClassicState) -> ClassicData:
    group = ClassicData(Group("g", GroupConfig()), new_member_id=lambda prefix: prefix)
    group.state = state
    return group


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ClassicState, ClassicState)))
def test_a_group_moves_only_as_the_table_allows(before: ClassicState, after: ClassicState) -> None:
    group = a_group_in(before)
    if (before, after) in LEGAL:
        group.move_to(after, Now(1, 77))
        assert (group.previous_state, group.state) == (before, after)
        assert group.state_timestamp_ms == 77
    else:
        with pytest.raises(AssertionError):
            group.move_to(after, Now(1, 77))
        assert group.state is before


def test_the_table_speaks_of_every_state() -> None:
    assert set(LEGAL_PREVIOUS) == set(ClassicState)


def test_names_are_those_on_the_wire() -> None:
    assert [state.value for state in ClassicState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_a_group_begins_empty_in_generation_zero() -> None:
    group = ClassicData(Group("g", GroupConfig()), new_member_id=lambda prefix: prefix)
    assert group.state is EMPTY
    assert group.generation == 0
    assert group.protocol_type is None
