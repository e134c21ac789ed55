"""Why a member wants to join: one reason at a time, the one that says most.

The broker gets it twice: as a number that it can act upon (JoinReason, tag 7728), and as a text for
people (KIP-800).
"""

from typing import Final, NamedTuple

from kohort.protocol.join_reason import JoinReason

TEXT_LENGTH_MAX: Final = 255
"""What goes to the broker of a text; the log has all of it."""

FAILURES_LENGTH_MAX: Final = 1_000
"""How long a text may get by failures. A broker may be away for hours, with two attempts a second.
"""

_BY_WEIGHT: Final = (
    JoinReason.ENFORCED,
    JoinReason.ASSIGNOR_STATE_CHANGE,
    JoinReason.UPGRADE,
    JoinReason.SUBSCRIPTION_CHANGE,
    JoinReason.TOPIC_METADATA_CHANGE,
    JoinReason.PARTITIONS_REVOKED,
    JoinReason.MEMBERSHIP_LOST,
    JoinReason.RESTART,
    JoinReason.GROUP_REBALANCING,
)
_WEIGHT: Final = {reason: -place for place, reason in enumerate(_BY_WEIGHT)}


class Rejoin(NamedTuple):
    """That a member wants to join, and why."""

    reason: JoinReason
    text: str

    @property
    def wire_text(self) -> str:
        return self.text[:TEXT_LENGTH_MAX]

    def after_failure(self, failure: str) -> "Rejoin":
        """The same wish, tried again; why it began is not forgotten, and what is the same as before
        is not said again.
        """
        if self.text.endswith(failure) or len(self.text) >= FAILURES_LENGTH_MAX:
            return self
        return Rejoin(self.reason, f"{self.text}; {failure}" if self.text else failure)


def combined(stored: Rejoin | None, new: Rejoin) -> Rejoin:
    """What is left of two wishes: the weightier, of equal ones the newer.

    That the group rebalances is only ever the first word, never the last.
    """
    if stored is None:
        return new
    if new.reason is JoinReason.GROUP_REBALANCING:
        return stored
    return new if _WEIGHT[new.reason] >= _WEIGHT[stored.reason] else stored
