"""Why a member wants to join; if there are several reasons, the most significant one.

The broker gets it in two forms: a number that it can act on (JoinReason, tag 7728), and a text for
people (KIP-800).
"""

from typing import Final, NamedTuple

from kohort.protocol.join_reason import JoinReason

TEXT_LENGTH_MAX: Final = 255
"""Maximum length of the reason text sent to the broker; the log has the whole text."""

FAILURES_LENGTH_MAX: Final = 1_000
"""No more failed attempts are appended to a text at least this long: a broker may be away for
hours, with two attempts a second."""

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
    reason: JoinReason
    text: str

    @property
    def wire_text(self) -> str:
        return self.text[:TEXT_LENGTH_MAX]

    def after_failure(self, failure: str) -> "Rejoin":
        """Return the reason with `failure` appended, unless its text ends with it or is long."""
        if self.text.endswith(failure) or len(self.text) >= FAILURES_LENGTH_MAX:
            return self
        return Rejoin(self.reason, f"{self.text}; {failure}" if self.text else failure)


def combined(stored: Rejoin | None, new: Rejoin) -> Rejoin:
    """Combine two reasons: the more significant reason wins; of equal ones, the newer.

    GROUP_REBALANCING, the least significant reason, never replaces a stored one.
    """
    if stored is None:
        return new
    if new.reason is JoinReason.GROUP_REBALANCING:
        return stored
    return new if _WEIGHT[new.reason] >= _WEIGHT[stored.reason] else stored
