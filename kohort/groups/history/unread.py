"""Partitions of members that left or were removed: how many had no reader, and for how long."""

from collections.abc import Iterable
from typing import Final

from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.history.facts import Departure, RebalanceFacts
from kohort.groups.history.model import Unread
from kohort.groups.history.moves import Moves
from kohort.groups.history.names import MemberFate
from kohort.groups.history.shares import TopicPartition
from kohort.groups.steps import FEW, Steps

NONE_UNREAD: Final = Unread()

_GONE: Final = frozenset(
    {
        MemberFate.LEFT,
        MemberFate.REMOVED_BY_ADMIN,
        MemberFate.SESSION_EXPIRED,
        MemberFate.REBALANCE_TIMEOUT,
        MemberFate.SYNC_EXPIRED,
    }
)


def unread_steps(
    facts: RebalanceFacts, moves: Moves, answered_at: dict[str, int], end_ms: int
) -> Steps[Unread]:
    """Sum up the partitions of members that left or were removed: counts, and longest time unread.

    A partition has no reader from its member's last sign of life until another member gets it, or
    until `end_ms`.

    Args:
        facts: the rebalance.
        moves: the moves of partitions of a classic group.
        answered_at: when members of a classic group got their assignment.
        end_ms: when the rebalance ended, or now.
    """
    silent = _silences((facts.started.trigger, *(cause.trigger for cause in facts.causes)))
    count, member_count, longest_ms = 0, 0, 0
    for place, gone in enumerate(facts.gone.values(), start=1):
        if place % FEW == 0:
            yield
        partitions = _partitions_of(facts, moves, gone)
        if gone.fate not in _GONE or gone.replaced_by is not None or not partitions:
            continue
        member_count += 1
        since_ms = gone.at_ms - silent.get(gone.member.member_id, 0)
        if gone.member.member_id not in facts.joins:
            # The member learned of the rebalance and did not join, so it has not polled since.
            since_ms = min(since_ms, facts.told.get(gone.member.member_id, since_ms))
        for partition in partitions:
            until_ms = end_ms
            if facts.consumers is not None:
                until_ms = facts.consumers.gained_at.get(partition, end_ms)
            elif partition in moves.gained_by:
                until_ms = answered_at.get(moves.gained_by[partition], end_ms)
            count += 1
            longest_ms = max(longest_ms, until_ms - since_ms)
    return Unread(partition_count=count, member_count=member_count, longest_ms=longest_ms)


def _partitions_of(
    facts: RebalanceFacts, moves: Moves, gone: Departure
) -> Iterable[TopicPartition]:
    return gone.held if facts.consumers is not None else moves.of(gone.member.member_id).given_up


def _silences(triggers: Iterable[Trigger]) -> dict[str, int]:
    """Return how long members had not fetched before they were removed, as far as known."""
    silent: dict[str, int] = {}
    for trigger in triggers:
        silent_ms = trigger.unfetched_ms or 0
        if trigger.kind is TriggerKind.SESSION_EXPIRED:
            silent_ms = trigger.timeout_ms or 0
        if silent_ms:
            member = () if trigger.member is None else (trigger.member.member_id,)
            silent |= dict.fromkeys((*member, *trigger.removed), silent_ms)
    return silent
