"""The values of JoinGroup's tag 7728, Kohort's extension: why a member joins, as a number.

The tag is optional, in version 6 and later. Brokers that do not know it skip it, and without it the
reason is UNKNOWN, so that clients can send it to any broker.
"""

from enum import IntEnum


class JoinReason(IntEnum):
    """Reasons for a join: negative ones are reserved, 64 to 127 private."""

    UNKNOWN = 0
    """A reason that was not stated; never written to the wire."""
    RESTART = 1
    """First join of a process, or its rejoin after a restart."""
    TOPIC_METADATA_CHANGE = 2
    """The leader saw topics or partition counts change."""
    UPGRADE = 3
    """A rolling upgrade needs a fresh assignment."""
    SUBSCRIPTION_CHANGE = 4
    """The member's own subscription changed."""
    PARTITIONS_REVOKED = 5
    """The second round of a cooperative rebalance."""
    ENFORCED = 6
    """The application requested the rebalance (KIP-568)."""
    GROUP_REBALANCING = 7
    """The broker reported a running rebalance, which another member caused."""
    MEMBERSHIP_LOST = 8
    """Fenced, expired, or otherwise no longer a member."""
    ASSIGNOR_STATE_CHANGE = 9
    """The meaning of the user data changed, for example because a standby has caught up."""

    @classmethod
    def from_tag(cls, value: int) -> "JoinReason":
        """Return the reason with a number from the wire; UNKNOWN for numbers without a reason."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN
