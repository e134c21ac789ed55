"""Kafka releases to export to: their feature levels and record versions.

A later release accepts a directory for an earlier one, and can raise its levels (`kafka-features.sh
upgrade`). Partitions have the same content for all releases: Kafka 3.5 and later read Kohort's
group and transaction records (KIP-915).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kohort.protocol.message import schema_of
from kohort.protocol.messages.cluster_metadata import PartitionRecord


class Release(NamedTuple):
    name: str
    features: Mapping[str, int]
    """The feature levels that `kafka-storage format` of this release gives a new cluster; any
    other feature is at level 0.
    """
    older: Mapping[type, int] = {}
    """Versions of those record types whose latest version this release does not know."""
    begins_with_file: bool = False
    """Whether a new cluster reads its first metadata records from bootstrap.checkpoint, as before
    KIP-1170 (4.4)."""

    def version_of(self, record: type) -> int:
        return self.older.get(record, schema_of(record).versions.high)


KAFKA_3_9: Final = Release(
    "3.9", {"metadata.version": 21}, {PartitionRecord: 1}, begins_with_file=True
)
"""The last release before 4.0; it lacks the feature eligible.leader.replicas."""

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

RELEASES: Final = {release.name: release for release in (KAFKA_3_9, KAFKA_4_4)}
