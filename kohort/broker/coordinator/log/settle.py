"""Which records of the groups' log count, as far as it has been read.

A record outside of transactions counts where it lies. One of a transaction counts from the marker
that commits it, in the place where it lies itself: a later record of its key outweighs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.coordinator.log.offsets_log import Stored, StoredMarker, StoredRecord
from kohort.broker.core.group.offsets.held import HeldValues
from kohort.protocol.records.batch import NO_PRODUCER_ID


class Settler:
    """Goes through one partition from its beginning."""

    def __init__(self) -> None:
        self.held: HeldValues[bytes, StoredRecord] = HeldValues()
        """Records of transactions that are open where the reading has come to, by key."""

    def take(self, entry: Stored) -> Sequence[StoredRecord]:
        """The next entry of the log; returns records that outweigh all others of their keys that
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
