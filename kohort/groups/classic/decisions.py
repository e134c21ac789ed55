"""Decides whether a join causes a rebalance: the decision table of joins, row by row.

Rows 1 to 4 do not depend on the stated reason, and the callers of `decide` handle them: a request
with an unknown member id is refused, an empty group begins its initial rebalance, a first join
without an identity gets an id, and during the join phase a join takes part in that rebalance.
`decide` looks up the other rows; the first matching row wins.

| # | State | Member | Reason | Rebalance |
|---|---|---|---|---|
| 5 | Completing, Stable | new | any | yes |
| 6 | Completing | replacement | any | yes: the leader may be assigning to the old id |
| 7 | Completing | known, differs | any | yes |
| 8 | Completing | known, same | any | no: a rebalance is in progress already (KIP-568) |
| 9 | Stable | known or replacement, differs | any | yes: a protocol change outranks the reason |
| 10 | Stable | known or replacement | in `FORCING` | yes |
| 11 | Stable | leader | TOPIC_METADATA_CHANGE | yes |
| 12 | Stable | follower | TOPIC_METADATA_CHANGE | no: only the leader's statement counts |
| 13 | Stable | leader, known | RESTART | no: the JoinReason tag was introduced for this |
| 14 | Stable | leader, known | other | yes: as in Kafka |
| 15 | Stable | replacement | other | no (KIP-345, KIP-814) |
| 16 | Stable | follower, known | other | no |
"""

from enum import Enum, auto
from typing import NamedTuple

from kohort.groups.classic.states import ClassicState
from kohort.groups.reasons import FORCING
from kohort.protocol.join_reason import JoinReason


class Joiner(Enum):
    """The kinds of joining members that the decision table distinguishes."""

    NEW = auto()
    """A member that joins with an unused id, or with an instance id that no member holds."""
    KNOWN = auto()
    """A member that rejoins under its own id."""
    REPLACEMENT = auto()
    """A client without a member id, but with the instance id of a member (KIP-345)."""


class Decision(NamedTuple):
    row: int
    rebalance: bool


def decide(  # noqa: PLR0911 - one return per row.
    state: ClassicState, joiner: Joiner, reason: JoinReason, *, differs: bool, leads: bool
) -> Decision:
    """Return the decision for a join, from rows 5 to 16 of the table above.

    Args:
        state: CompletingRebalance or Stable.
        reason: `StatedReason.decisive`.
        differs: for a known member, that its protocols differ from its previous join, byte for
            byte; for a replacement, that the group would choose another protocol.
        leads: whether the member, or the one it replaces, is the leader.
    """
    if joiner is Joiner.NEW:
        return Decision(5, rebalance=True)
    if state is ClassicState.COMPLETING_REBALANCE:
        if joiner is Joiner.REPLACEMENT:
            return Decision(6, rebalance=True)
        return Decision(7, rebalance=True) if differs else Decision(8, rebalance=False)
    assert state is ClassicState.STABLE
    if differs:
        return Decision(9, rebalance=True)
    if reason in FORCING:
        return Decision(10, rebalance=True)
    if reason is JoinReason.TOPIC_METADATA_CHANGE:
        return Decision(11, rebalance=True) if leads else Decision(12, rebalance=False)
    if joiner is Joiner.REPLACEMENT:
        return Decision(15, rebalance=False)
    if not leads:
        return Decision(16, rebalance=False)
    if reason is JoinReason.RESTART:
        return Decision(13, rebalance=False)
    return Decision(14, rebalance=True)
