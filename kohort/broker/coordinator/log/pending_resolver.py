"""Determines which records of the groups' log count.

A record outside of transactions counts immediately. A transactional record counts from its commit
marker on, but in its own place in the log: a later record with its key takes precedence.
"""

from collections.abc import Sequence

from kohort.broker.coordinator.log.offsets_log import Stored, StoredMarker, StoredRecord
from kohort.groups.offsets.held_values import HeldValues
from kohort.protocol.records.batch import NO_PRODUCER_ID


class PendingResolver:
    """Reads one partition from its beginning."""

    def __init__(self) -> None:
        self.held: HeldValues[bytes, StoredRecord] = HeldValues()
        """Records of open transactions at this point of the log, by key."""

    def take(self, entry: Stored) -> Sequence[StoredRecord]:
        """Process the next entry; return records that supersede all others with their keys that
        were returned before.
        """
        if isinstance(entry, StoredMarker):
            ended = self.held.end(entry.producer_id, commit=entry.is_commit)
            return [record for _, record in ended]
        if entry.producer_id != NO_PRODUCER_ID:
            self.held.hold(entry.producer_id, entry.key, entry)
            return ()
        if self.held.by_producer:
            if entry.value is None:
                self.held.drop(entry.key)
            else:
                self.held.overtake(entry.key)
        return (entry,)
