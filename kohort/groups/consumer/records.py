"""The records of consumer groups in the log; see `encoding` for their bytes.

Each tombstone deletes the record with the same key.
"""

from collections.abc import Mapping
from typing import NamedTuple


class ClassicPart(NamedTuple):
    """The additional values of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), in order of preference."""


class ConsumerMemberRecord(NamedTuple):
    """A member's metadata: its subscription, client and requested assignor."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicPart | None = None


class ConsumerMemberTombstone(NamedTuple):
    """The member was removed."""

    group_id: str
    member_id: str


class EpochRecord(NamedTuple):
    group_id: str
    epoch: int
    metadata_hash: int
    """Hash of the subscribed topics, signed; 0 if no topic exists."""
    begun: bytes | None = None
    """The cause of a rebalance whose target is not computed yet; see `classic.stored_cause`."""


class EpochTombstone(NamedTuple):
    """The group was removed."""

    group_id: str


class TargetEpochRecord(NamedTuple):
    group_id: str
    epoch: int
    computed_at_ms: int
    """Wall-clock time; 0 if it is unknown or the group has no members."""
    begun: bytes | None = None
    """The encoded cause of the rebalance that led to this target."""

    @property
    def generation(self) -> int:
        """The epoch, under the name that the history uses."""
        return self.epoch

    @property
    def state_timestamp_ms(self) -> int:
        """When the target was computed."""
        return self.computed_at_ms


class TargetEpochTombstone(NamedTuple):
    """The group has no target assignment."""

    group_id: str


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    partitions: Mapping[bytes, tuple[int, ...]]
    """Partition numbers by topic id."""


class TargetTombstone(NamedTuple):
    """The member has no target assignment."""

    group_id: str
    member_id: str


class CurrentRecord(NamedTuple):
    """A member's epoch, state and partitions."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Mapping[bytes, Mapping[int, int]]
    """The epoch at which each partition was assigned, by topic id and partition number."""
    pending: Mapping[bytes, Mapping[int, int]]
    """The epoch at which each partition to revoke was assigned, by topic id and partition
    number."""


class CurrentTombstone(NamedTuple):
    """The member has no epoch and no partitions."""

    group_id: str
    member_id: str


class RegexRecord(NamedTuple):
    """The topics that a regular expression matched."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    topics_version: int
    resolved_at_ms: int


class RegexTombstone(NamedTuple):
    """No member uses the regular expression any more."""

    group_id: str
    regex: str


class OldMetadataTombstone(NamedTuple):
    """Removes the topic metadata that brokers before 4.1 stored with a group."""

    group_id: str
