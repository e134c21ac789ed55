"""Which Kafka an exported directory is for: its feature levels, and the records that go with them.

A later release takes what is for an earlier one, and can raise its levels (`kafka-features.sh
upgrade`). What partitions hold is the same for all: Kafka reads our records of groups and of
transactions since 3.5 (KIP-915).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kohort.protocol.message import schema_of
from kohort.protocol.messages.cluster_metadata import PartitionRecord


class Release(NamedTuple):
    """One that a directory can be made for."""

    name: str
    features: Mapping[str, int]
    """Levels that its `kafka-storage format` gives a new cluster; what is not named is at 0."""
    older: Mapping[type, int] = {}
    """Versions of records that this level has in an older form than we know."""
    begins_with_file: bool = False
    """Whether a new cluster's records are read from bootstrap.checkpoint, as before KIP-1170
    (4.4)."""

    def version_of(self, record: type) -> int:
        """The version in which a record of this type is written."""
        return self.older.get(record, schema_of(record).versions.high)


KAFKA_3_9: Final = Release(
    "3.9", {"metadata.version": 21}, {PartitionRecord: 1}, begins_with_file=True
)
"""The last release before 4.0; it has no eligible leader replicas."""

KAFKA_4_4: Final = Release(
    "4.4",
    {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    },
)

RELEASES: Final = {one.name: one for one in (KAFKA_3_9, KAFKA_4_4)}
