"""The settings and topics of the broker, as consumer groups use them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kohort.groups.member_memory import MemberMemory


class ConsumerSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    """How often members are to send heartbeats."""
    assignment_interval_ms: int = 1_000
    """The least time between two target assignments."""
    max_size: int = 2**31 - 1
    """Maximum number of members."""
    assignors: Sequence[str] = ("uniform", "range")
    """Names of the assignors; the first is used unless members request another."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are resolved if no topic was created."""
    allows_upgrade: bool = True
    """Whether a classic group with members becomes a consumer group when a consumer joins."""
    allows_downgrade: bool = True
    """Whether it becomes a classic group when its last consumer leaves."""
    allows_classic_members: bool = True
    """Whether classic members may join."""


class MemberAccount:
    """The members of all consumer groups of the broker: how many there are, and their memory, which
    they share with the members of other groups.
    """

    __slots__ = ("count", "memory")

    def __init__(self, memory: MemberMemory | None = None) -> None:
        self.count = 0
        self.memory = memory or MemberMemory()

    def add(self, members: int, used_bytes: int) -> None:
        """Add to the number of members and the bytes that they use; negative if members leave."""
        self.count += members
        self.memory.used_bytes += used_bytes


class Topic(NamedTuple):
    topic_id: bytes
    partition_count: int


class Topics(Protocol):
    """The topics of the broker. All methods are reads of the present state."""

    @property
    def version(self) -> int:
        """A number that increases whenever a topic is created, gets partitions or is deleted."""
        ...

    def get(self, name: str) -> Topic | None:
        """Return a topic, None if it does not exist."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None if it does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """All names, internal ones included; a copy."""
        ...
