"""The transition table, walked."""

import itertools

import pytest

from kohort.groups.classic.data import GroupData
from kohort.groups.classic.states import LEGAL_PREVIOUS
from kohort.groups.config import GroupConfig
from kohort.groups.requests import Now
from kohort.groups.states import GroupState

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

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


def a_group_in(state: GroupState) -> GroupData:
    group = GroupData("g", GroupConfig(), new_member_id=lambda prefix: prefix)
    group.state = state
    return group


@pytest.mark.parametrize(("before", "after"), list(itertools.product(GroupState, GroupState)))
def test_a_group_moves_only_as_the_table_allows(before: GroupState, after: GroupState) -> None:
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
    assert set(LEGAL_PREVIOUS) == set(GroupState)


def test_names_are_those_on_the_wire() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_a_group_begins_empty_in_generation_zero() -> None:
    group = GroupData("g", GroupConfig(), new_member_id=lambda prefix: prefix)
    assert group.state is EMPTY
    assert group.generation == 0
    assert group.protocol_type is None
