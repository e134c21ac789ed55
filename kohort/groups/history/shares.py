"""Parses a member's partitions from the bytes of its assignment or subscription.

Clients write these bytes, and the broker does not validate them: bytes that cannot be parsed give
"unknown", never an error.
"""

from typing import Final, TypeAlias

from kohort.groups.history.names import ASSIGNMENT_BYTES_MAX
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

TopicPartition: TypeAlias = tuple[str, int]
Share: TypeAlias = frozenset[TopicPartition]

NOTHING: Final[Share] = frozenset()

_VERSION_BYTES: Final = 2
_ASSIGNMENT: Final = codec(ConsumerProtocolAssignment, 0)
_SUBSCRIPTION: Final = codec(ConsumerProtocolSubscription, 1)
"""The first version with owned partitions; newer ones only append fields."""


def parse_share(assignment: bytes) -> Share | None:
    """Return an assignment's partitions; empty for empty bytes, None if it cannot be parsed."""
    if not assignment:
        return NOTHING
    if not _VERSION_BYTES <= len(assignment) <= ASSIGNMENT_BYTES_MAX:
        return None
    try:
        parsed, _ = _ASSIGNMENT.decode(assignment, _VERSION_BYTES)
    except DecodeError:
        return None
    return frozenset(
        (listed.topic, index)
        for listed in parsed.assigned_partitions
        for index in listed.partitions
    )


def owns_partitions(subscription: bytes) -> bool:
    """Whether a member joins while it owns partitions; only cooperative members do (KIP-429)."""
    if not _VERSION_BYTES <= len(subscription) <= ASSIGNMENT_BYTES_MAX:
        return False
    if subscription[:_VERSION_BYTES] == b"\0\0":
        return False
    try:
        parsed, _ = _SUBSCRIPTION.decode(subscription, _VERSION_BYTES)
    except DecodeError:
        return False
    return any(listed.partitions for listed in parsed.owned_partitions)
