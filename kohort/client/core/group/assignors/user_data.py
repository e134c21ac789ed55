"""The user data of the sticky assignors, in the format of Java's.

Anything else in that field, such as another assignor's data, counts as no previous assignment: that
costs stickiness, not correctness.
"""

from collections.abc import Collection
from typing import Final

from kohort.client.core.group.assignors.assignor import GroupMember
from kohort.client.core.group.assignors.claims import Claim
from kohort.client.core.partitions import TopicPartition, by_topic, from_topics
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.message import field, record
from kohort.protocol.messages.consumer_protocol import TopicPartition as PartitionsOfTopic
from kohort.protocol.types import Int32

UNKNOWN_GENERATION: Final = -1


@record(versions="0-1", flexible="none")
class StickyUserData:
    """A member's last assignment as `sticky` encodes it. There is no version prefix (KIP-341)."""

    previous_assignment: list[PartitionsOfTopic]
    generation: Int32 = field(default=UNKNOWN_GENERATION, since=1, ignorable=True)


def encode_held(partitions: Collection[TopicPartition], generation: int) -> bytes:
    """Encode the user data of `sticky`."""
    held = StickyUserData(previous_assignment=by_topic(partitions), generation=generation)
    return codec(StickyUserData, 1).encode(held)


def decode_held(member: GroupMember) -> Claim:
    """Return the claim in a member's user data of `sticky`;
    an empty one if it cannot be decoded.
    """
    user_data = member.user_data or b""
    for version in (1, 0):
        try:
            held, end = codec(StickyUserData, version).decode(user_data)
        except DecodeError:
            continue
        if end == len(user_data):
            partitions = from_topics(held.previous_assignment)
            return Claim(member.member_id, held.generation, partitions)
    return Claim(member.member_id, UNKNOWN_GENERATION, ())


def encode_generation(generation: int) -> bytes:
    """Encode the user data of `cooperative-sticky`."""
    return generation.to_bytes(4, "big", signed=True)


def decode_generation(user_data: bytes | None) -> int:
    """Return the generation in a member's user data of `cooperative-sticky`,
    -1 if there is none.
    """
    if user_data is None or len(user_data) < 4:
        return UNKNOWN_GENERATION
    return int.from_bytes(user_data[:4], "big", signed=True)
