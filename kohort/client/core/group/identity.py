"""The identity of a consumer in its group at one moment.

Each request remembers the identity that it was sent with. A response that invalidates an identity
is ignored if the consumer has another one by then.
"""

from struct import Struct
from typing import Final, NamedTuple

UNKNOWN_GENERATION = -1


class Identity(NamedTuple):
    generation: int = UNKNOWN_GENERATION
    member_id: str = ""
    protocol_name: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the coordinator recognised this member in its latest response."""
        return self.generation != UNKNOWN_GENERATION and bool(self.member_id)

    def without_generation(self) -> "Identity":
        """Return the identity for rejoining as the same member."""
        return Identity(member_id=self.member_id)


NO_MEMBER = Identity()


_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = Struct("=i")


class GroupMetadata(NamedTuple):
    """Identifies the consumer whose positions a transactional producer commits (KIP-447).

    The member id and generation let the coordinator reject positions of a member that it has
    removed, even if the member does not know that yet.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def for_librdkafka(self) -> bytes:
        """Serialise for librdkafka's producers, including confluent-kafka's: the second argument of
        `Producer.send_offsets_to_transaction`.

        The layout is that of `rd_kafka_consumer_group_metadata_write` since librdkafka 1.6.

        Raises:
            ValueError: a name contains a NUL character, which would terminate it in C.
        """
        names = (self.group_id, self.member_id, self.group_instance_id or "")
        if any("\0" in name for name in names):
            raise ValueError(f"librdkafka accepts no names with NUL characters: {self}")
        group_id, member_id, instance_id = (name.encode() + b"\0" for name in names)
        instance = b"\1" if self.group_instance_id is None else b"\0" + instance_id
        generation = _GENERATION.pack(self.generation_id)
        return b"".join((_MAGIC, generation, group_id, member_id, instance))
