"""Which partitions a member holds, read from what assignors and members write.

These bytes are made by clients, and the broker promises them nothing: whatever cannot be read makes
the answer "unknown", never an error.
"""

from typing import Final, TypeAlias

from kohort.broker.core.history.limits import ASSIGNMENT_BYTES_MAX
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
"""The first version that tells owned partitions; newer ones only append."""


def parse_share(assignment: bytes) -> Share | None:
    """The partitions of an assignment; nothing for an empty one, None if it cannot be read."""
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
    """Does a member join while it holds partitions? Only cooperative ones do (KIP-429)."""
    if not _VERSION_BYTES <= len(subscription) <= ASSIGNMENT_BYTES_MAX:
        return False
    if subscription[:_VERSION_BYTES] == b"\0\0":
        return False
    try:
        parsed, _ = _SUBSCRIPTION.decode(subscription, _VERSION_BYTES)
    except DecodeError:
        return False
    return any(listed.partitions for listed in parsed.owned_partitions)
