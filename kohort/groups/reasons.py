"""The reason of a join: stated in the JoinReason tag, or inferred from its reason text.

Only the tag influences decisions. The text (KIP-800) is wording of client libraries that changes
without notice; it is classified only for the rebalance history, and marked as inferred.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from kohort.protocol.join_reason import JoinReason

FORCING: Final = frozenset(
    {
        JoinReason.UPGRADE,
        JoinReason.SUBSCRIPTION_CHANGE,
        JoinReason.PARTITIONS_REVOKED,
        JoinReason.ENFORCED,
        JoinReason.ASSIGNOR_STATE_CHANGE,
    }
)
"""Reasons that make a Stable group rebalance, whichever member states them."""


class ReasonSource(Enum):
    """How the reason of a join is known: from its tag, or inferred from its text."""

    TAG = "tag"
    INFERRED = "inferred"
    NONE = "none"


class StatedReason(NamedTuple):
    reason: JoinReason = JoinReason.UNKNOWN
    source: ReasonSource = ReasonSource.NONE
    raw: int = 0
    """The number in the JoinReason tag, even if no reason with this number is known."""
    text: str | None = None
    """The reason text, at most `TEXT_MAX` characters of it."""

    @property
    def decisive(self) -> JoinReason:
        return self.reason if self.source is ReasonSource.TAG else JoinReason.UNKNOWN


NO_REASON: Final = StatedReason()

POLL_TIMEOUT: Final = "poll timeout"
"""Part of the reason text of Java and Kohort consumers that leave because they are not polled."""

_GIVEN_ID: Final = "given member-id"
"""Part of the reason text in the second request of every first join (KIP-394)."""

TEXT_MAX: Final = 255
"""Longest reason text that is kept; the Java client truncates its own at this length."""

_KEYWORDS: Final = (
    ("metadata has changed", JoinReason.TOPIC_METADATA_CHANGE),
    ("subscription", JoinReason.SUBSCRIPTION_CHANGE),
    ("revoke", JoinReason.PARTITIONS_REVOKED),
    ("enforced", JoinReason.ENFORCED),
    ("already rebalancing", JoinReason.GROUP_REBALANCING),
    (_GIVEN_ID, JoinReason.RESTART),
    ("failed", JoinReason.MEMBERSHIP_LOST),
    ("leaving the group", JoinReason.MEMBERSHIP_LOST),
)
_ERROR_NAME: Final = re.compile(r"\b[A-Z]\w*(?:Exception|Error)\b|\b[A-Z]{2,}(?:_[A-Z]{2,})+\b")
"""Matches the names of errors: UnknownMemberIdException, ILLEGAL_GENERATION."""


def classify_text(text: str | None) -> JoinReason:
    """Return the reason that a text suggests; UNKNOWN if it suggests none."""
    if not text:
        return JoinReason.UNKNOWN
    lower = text.lower()
    for keyword, reason in _KEYWORDS:
        if keyword in lower:
            return reason
    return JoinReason.MEMBERSHIP_LOST if _ERROR_NAME.search(text) else JoinReason.UNKNOWN


def is_first_join(text: str) -> bool:
    """Whether a reason text is that of a new member's first join."""
    return _GIVEN_ID in text.lower()


def has_stopped_polling(
    text: str | None, unfetched_ms: int | None, *, still_connected: bool | None
) -> bool:
    """Whether a member that left did so because its application did not poll in time.

    Args:
        text: the reason text of its LeaveGroup. Most clients state none.
        unfetched_ms: how long it had sent heartbeats but no Fetch; None if not for long.
        still_connected: whether its connection was open long after its LeaveGroup.
    """
    if text:
        return POLL_TIMEOUT in text
    return unfetched_ms is not None or bool(still_connected)


def state_reason(tag: int, text: str | None) -> StatedReason:
    """Return the reason of a JoinReason tag; if that is 0 (absent), infer it from the text."""
    if not tag and text is None:
        return NO_REASON
    return _stated(tag, None if text is None else text[:TEXT_MAX])


@lru_cache(maxsize=64)
def _stated(tag: int, text: str | None) -> StatedReason:
    """Return the reason. The latest few are cached: in a rebalance all members state the same
    reason, and share the object.
    """
    if tag:
        return StatedReason(JoinReason.from_tag(tag), ReasonSource.TAG, tag, text)
    reason = classify_text(text)
    source = ReasonSource.INFERRED if reason else ReasonSource.NONE
    return StatedReason(reason, source, 0, text)
