"""The initial rebalance delay: when the first generation of an empty group begins."""

import pytest

from kohort.groups.config import GroupConfig
from tests.support.groups.scenario import SECOND, Scenario


def completion_s(rebalance_timeout_s: float, joins_s: list[float], delay_s: float = 3) -> float:
    """When the join phase ends, counted from the first join."""
    s = Scenario(GroupConfig(initial_rebalance_delay_ms=int(delay_s * SECOND)))
    start_ms = s.ms
    timeout_ms = int(rebalance_timeout_s * SECOND)
    tickets = []
    for at_s in joins_s:
        s.advance(start_ms + int(at_s * SECOND) - s.ms)
        tickets.append(s.join(requires_known_id=False, rebalance_timeout_ms=timeout_ms))
    while s.state == "PreparingRebalance":
        s.advance(1)
    assert all(ticket.answer.generation == 1 for ticket in tickets)
    return (s.ms - start_ms) / SECOND


@pytest.mark.parametrize(
    ("rebalance_timeout_s", "joins_s", "completes_s"),
    [
        (20, [0], 3.0),
        (20, [0, 1], 6.0),
        (20, [0, 1, 2], 6.0),
        (20, [0, 2, 4], 9.0),
        (8, [0, 2, 4, 5.5], 8.0),
        (8, [0, 2, 4, 6.5], 8.0),
        (8, [0, 2, 4, 7.5], 8.0),
        (4, [0, 1], 4.0),
        (2, [0], 3.0),
        (2, [0, 1], 3.0),
    ],
)
def test_the_join_phase_ends_when_kafka_ends_it(
    rebalance_timeout_s: float, joins_s: list[float], completes_s: float
) -> None:
    assert completion_s(rebalance_timeout_s, joins_s) == completes_s


def test_without_a_delay_the_phase_ends_on_the_next_turn() -> None:
    s = Scenario(GroupConfig(initial_rebalance_delay_ms=0))
    _, ticket = s.join_dynamic()
    assert ticket.is_parked
    s.advance(0)
    assert ticket.answer.generation == 1


@pytest.mark.parametrize("goes", ["member", "pending id", "pending id by leaving"])
def test_a_member_that_goes_neither_shortens_nor_extends_the_delay(goes: str) -> None:
    s = Scenario()
    start_ms = s.ms
    first, ticket = s.join_dynamic()
    if goes == "member":
        second, _ = s.join_dynamic()
        s.leave(second)
    else:
        unused = s.new_id(session_timeout_ms=6 * SECOND)
        if goes == "pending id by leaving":
            s.leave(unused)
    s.advance(2_999)
    assert ticket.is_parked
    # The second member has extended the delay before it left, an unused id never does.
    s.advance(3_001 if goes == "member" else 1)
    assert ticket.answer.error == 0
    assert [member.member_id for member in s.classic.roster] == [first]
    assert s.ms - start_ms == (6_000 if goes == "member" else 3_000)


def test_if_everybody_leaves_the_group_becomes_empty_at_the_next_expiry() -> None:
    s = Scenario()
    member_id, _ = s.join_dynamic()
    s.leave(member_id)
    assert s.state == "PreparingRebalance"
    s.advance(3 * SECOND - 1)
    assert (s.state, s.classic.data.generation) == ("PreparingRebalance", 0)
    s.advance(1)
    assert (s.state, s.classic.data.generation) == ("Empty", 1)
