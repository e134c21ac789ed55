"""What the logs on a disk say, read batch by batch from their files: by other code than the
broker's, as simple as it can be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.broker.core.transaction.records import TransactionRecord, decode_key, decode_value
from kohort.groups.encoding import decode as decode_group_record
from kohort.groups.records import OffsetTombstone
from kohort.protocol.codec import decode_versioned
from kohort.protocol.messages.offsets_topic import OffsetCommitValue
from kohort.protocol.records.batch import BatchHeader, split_batches
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import decode_records
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.simulation.transactions.ledger import Seen


class Batch(NamedTuple):
    header: BatchHeader
    content: bytes | memoryview

    @property
    def marks(self) -> ControlType | None:
        """What it says if it ends a transaction."""
        if not self.header.is_control or not self.header.record_count:
            return None
        marker = decode_marker(self.content, self.header)
        return None if marker is None else marker.control_type


class Ended(NamedTuple):
    producer_id: int
    first: int
    last: int
    """Offset of the marker."""
    result: ControlType


@dataclass(slots=True)
class Producer:
    epoch: int
    last_sequence: int = -1
    first: int = -1
    """Where its open transaction begins."""
    marker_epoch: int = -1


@dataclass(slots=True)
class Partition:
    """A log, read from its beginning."""

    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    end: int = 0

    @property
    def start(self) -> int:
        return self.batches[0].header.base_offset if self.batches else 0

    @property
    def stable(self) -> int:
        """Below it all is decided."""
        return min([self.end, *(one.first for one in self.producers.values() if one.first >= 0)])

    def open(self) -> dict[int, tuple[int, int]]:
        """(first offset, epoch) of every open transaction, by its producer."""
        return {
            pid: (one.first, one.epoch) for pid, one in self.producers.items() if one.first >= 0
        }

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """What a fetch of these offsets has to be told."""
        return [
            (one.producer_id, one.first)
            for one in self.ended
            if one.result is ControlType.ABORT and one.last >= start and one.first < end
        ]

    def take(self, producer_id: int, epoch: int, first: int) -> None:
        """Go on with a producer that a broker knows."""
        self.producers[producer_id] = Producer(epoch, first=first)

    def feed(self, batch: Batch) -> None:
        """Take one batch more, of which the rules of producers must hold (P4, P12)."""
        header = batch.header
        assert header.base_offset >= self.end, f"{header} lies below {self.end}"
        self.batches.append(batch)
        self.end = header.base_offset + header.last_offset_delta + 1
        if header.producer_id < 0:
            return
        known = self.producers.get(header.producer_id)
        one = self.producers.setdefault(header.producer_id, Producer(header.producer_epoch))
        if header.is_control:
            self._feed_marker(batch, one)
            return
        assert header.producer_epoch >= one.marker_epoch, f"{header} lies behind a later marker"
        assert one.first < 0 or header.producer_epoch == one.epoch, f"{header}: two epochs in one"
        if known is not None:
            assert header.producer_epoch >= one.epoch, f"{header} is of an epoch that is over"
        one.epoch = header.producer_epoch
        one.last_sequence = header.last_sequence
        if header.is_transactional and one.first < 0:
            one.first = header.base_offset

    def _feed_marker(self, batch: Batch, one: Producer) -> None:
        header, result = batch.header, batch.marks
        if header.producer_epoch != one.epoch:
            one.last_sequence = -1
        one.epoch = max(one.epoch, header.producer_epoch)
        one.marker_epoch = max(one.marker_epoch, header.producer_epoch)
        if result is not None and one.first >= 0:
            self.ended.append(Ended(header.producer_id, one.first, header.base_offset, result))
            one.first = -1

    def fate(self, header: BatchHeader) -> ControlType | None:
        """How the transaction of a batch has ended; COMMIT for one that is in none."""
        if not header.is_transactional:
            return ControlType.COMMIT
        offset = header.base_offset
        for one in self.ended:
            if one.producer_id == header.producer_id and one.first <= offset < one.last:
                return one.result
        first = self.producers[header.producer_id].first
        return None if 0 <= first <= offset else ControlType.COMMIT

    def values(self) -> Iterator[Seen]:
        for header, content in self.batches:
            if header.record_count and not header.is_control:
                yield from seen_in(content, header)

    def committed(self) -> list[Seen]:
        """All that is committed, also where a reader of committed records still has to wait."""
        return [
            seen
            for header, content in self.batches
            if not header.is_control
            and header.record_count
            and self.fate(header) is ControlType.COMMIT
            for seen in seen_in(content, header)
        ]


def seen_in(content: bytes | memoryview, header: BatchHeader) -> Iterator[Seen]:
    for record in decode_records(content, header):
        yield Seen(record.offset, record.key, (record.value or b"").decode())


def read_log(files: SimulatedFileSystem, directory: str, *, is_recovered: bool = True) -> Partition:
    """A partition from its files, which have no gap once a start has looked at them."""
    found = Partition()
    names = [entry.name for entry in files.entries(directory)]
    for name in sorted(name for name in names if name.endswith(".log")):
        content = bytes(files.cached(f"{directory}/{name}"))
        base_offset = int(name.removesuffix(".log"))
        if is_recovered and found.batches:
            assert base_offset == found.end, f"{directory}: gap at {found.end}"
        # A log that lost all goes on where it was.
        found.end = max(found.end, base_offset)
        for header, batch in split_batches(content):
            found.feed(Batch(header, batch))
    return found


class Ids:
    def __init__(self, batches: Sequence[Batch]) -> None:
        self.latest: dict[str, TransactionRecord] = {}
        self.all: list[TransactionRecord] = []
        for header, content in batches:
            if header.record_count:
                for record in decode_records(content, header):
                    self._feed(record.key or b"", record.value)

    def _feed(self, key: bytes, value: bytes | None) -> None:
        name = decode_key(key)
        assert name is not None
        if value is None:
            self.latest.pop(name, None)
            return
        record = decode_value(name, bytes(value))
        self.latest[name] = record
        self.all.append(record)


class Offsets:
    """The groups' log, folded: a later record wins, if its transaction has committed (P8)."""

    def __init__(self, partition: Partition) -> None:
        self.committed: dict[str, int] = {}
        self.unstable: set[str] = set()
        last: dict[str, int] = {}
        for header, content in partition.batches:
            if header.is_control or not header.record_count:
                continue
            fate = partition.fate(header)
            for record in decode_records(content, header):
                # Without its value, the record of a key is its tombstone.
                key = decode_group_record(bytes(record.key or b""), None)
                if not isinstance(key, OffsetTombstone) or fate is ControlType.ABORT:
                    continue
                group = key.group_id
                if fate is None:
                    self.unstable.add(group)
                elif record.offset > last.get(group, -1):
                    assert record.value is not None
                    stored, _ = decode_versioned(OffsetCommitValue, bytes(record.value))
                    last[group] = record.offset
                    self.committed[group] = stored.offset
