"""The life of a compacted log that transactions are written to, some of which abort.

What `CompactedLife` lets happen, happens here as well. Consumers read committed records as clients
do: up to the last stable offset, and with the list of aborted transactions that each fetch gets.
"""

from typing import NamedTuple

from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.batch import CompressionType, read_header, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.property.compacted_life import CompactedLife, Reader
from tests.support.records.storage_tools import append, marker_of

PRODUCERS = (7, 8, 9)


class Place(NamedTuple):
    """What lies at an offset of the model's log, beside its record."""

    producer_id: int
    """-1 if it belongs to no transaction."""
    marks: ControlType | None = None


class Delivered(NamedTuple):
    """What one fetch gives to an application."""

    records: list[Record]
    next_offset: int


def fetch_committed(log: PartitionLog, offset: int, stable: int, max_bytes: int) -> Delivered:
    """Fetch as clients do: the list comes with every fetch and is used up along its batches."""
    data = log.read(offset, max_bytes, up_to_offset=stable, min_one=True)
    listed = log.aborted.in_read(offset, len(data), up_to_offset=stable).at_once()
    waiting = sorted((one.first_offset, one.producer_id) for one in listed)
    aborted: set[int] = set()
    records: list[Record] = []
    for header, batch in split_batches(data):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(waiting.pop(0)[1])
        if header.is_control:
            marker = decode_marker(batch, header) if header.record_count else None
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif header.record_count and not (
            header.is_transactional and header.producer_id in aborted
        ):
            records += [one for one in decode_records(batch, header) if one.offset >= offset]
        offset = max(offset, header.next_offset)
    return Delivered(records, offset)


class TransactionalLife(CompactedLife):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.places: list[Place] = []
        """By offset, beside `written`."""
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self._choices.append(self.end_one)
        self._weights.append(16)

    def append(self) -> None:
        random = self.random
        count = random.randrange(1, 4)
        records = self._records([self.wall_ms - random.randrange(1000) for _ in range(count)])
        producer_id = random.choice([-1, *PRODUCERS])
        is_transactional = producer_id >= 0
        if producer_id >= 0 and producer_id not in self.open():
            is_transactional = random.random() < 0.8
        batch = encode_batch(
            records,
            codec=CompressionType.GZIP if random.random() < 0.05 else CompressionType.NONE,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, -1),
            base_sequence=self.sequences.get(producer_id, -1),
            is_transactional=is_transactional,
        )
        assert self.log.producers.check(read_header(batch)) is None
        append(self.log, batch, wall_ms=self.wall_ms)
        if producer_id >= 0:
            self.sequences[producer_id] += len(records)
        self.written += records
        self.places += [Place(producer_id if is_transactional else -1)] * len(records)

    def end_one(self) -> None:
        """Let a transaction end, or write a marker that ends nothing."""
        random = self.random
        opened = sorted(self.open())
        producer_id = random.choice(opened if opened and random.random() < 0.95 else PRODUCERS)
        result = random.choice(list(ControlType))
        version = random.choice([1, 2])
        epoch = self.epochs[producer_id] + version - 1
        self.log.producers.check_marker(
            producer_id, epoch, coordinator_epoch=0, transaction_version=version
        )
        marker = marker_of(result, producer_id, epoch, timestamp=self.wall_ms)
        append(self.log, marker, wall_ms=self.wall_ms)
        if version > 1:
            self.epochs[producer_id], self.sequences[producer_id] = epoch, 0
        self.written.append(Record(b"marker", None, (), self.wall_ms, len(self.written)))
        self.places.append(Place(producer_id, result))
        self._count(result.name.lower())

    def finish(self) -> None:
        while self.open():
            self.end_one()
        super().finish()

    # The model.

    def open(self, from_offset: int = 0) -> dict[int, int]:
        """Producer id -> first offset of its transaction, of the records from an offset on."""
        opened: dict[int, int] = {}
        for offset, place in enumerate(self.places):
            if place.marks is not None:
                opened.pop(place.producer_id, None)
            elif place.producer_id >= 0 and offset >= from_offset:
                opened.setdefault(place.producer_id, offset)
        return opened

    def outcomes(self) -> list[ControlType | None]:
        """By offset: COMMIT for what counts; None for markers and what is not decided."""
        found: list[ControlType | None] = [None] * len(self.places)
        ends: dict[int, ControlType] = {}
        for offset in range(len(self.places) - 1, -1, -1):
            place = self.places[offset]
            if place.marks is not None:
                ends[place.producer_id] = place.marks
            elif place.producer_id < 0:
                found[offset] = ControlType.COMMIT
            else:
                found[offset] = ends.get(place.producer_id)
        return found

    def stable_offset(self) -> int:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        spans = self.log.producers.spans
        spans.settle(end)
        stable = spans.last_stable_offset(end, start)
        begun, readable = self.open(), self.open(start)
        # What began before the start of the log may be known from a snapshot that is lost.
        lowest, highest = (max(start, min([*known.values(), end])) for known in (begun, readable))
        assert lowest <= stable <= highest
        return stable

    def _latest(self, from_offset: int) -> dict[bytes, Record]:
        stable, outcomes = self.stable_offset(), self.outcomes()
        return {
            record.key: record
            for record in self.written[from_offset:stable]
            if record.key is not None and outcomes[record.offset] is ControlType.COMMIT
        }

    # What happens and what is seen.

    def _reopen(
        self, files: SimulatedFileSystem, flushed_offset: int, *, has_lost_power: bool
    ) -> None:
        super()._reopen(files, flushed_offset, has_lost_power=has_lost_power)
        del self.places[len(self.written) :]
        if has_lost_power and self.log.log_end_offset == self.log.log_start_offset:
            # What was deleted may be lost as well, be it the beginning or the end of a transaction.
            self.places = [Place(-1)] * len(self.places)
            for one in self.log.producers.open_transactions():
                self.places[one.first_offset] = Place(one.producer_id)
        for producer_id in PRODUCERS:
            producer = self.log.producers.get(producer_id)
            self.epochs[producer_id] = 0 if producer is None else producer.producer_epoch

    def _read_on(self, reader: Reader, byte_count: int) -> None:
        stable = self.stable_offset()
        while byte_count > 0 and reader.position < stable:
            found = fetch_committed(self.log, reader.position, stable, 200)
            assert found.next_offset > reader.position
            for record in found.records:
                if record.offset >= reader.start_offset and record.key is not None:
                    reader.table[record.key] = record.value
            reader.position = found.next_offset
            byte_count -= 200

    def check(self) -> list[Record]:
        kept = self._kept()
        outcomes, stable = self.outcomes(), self.stable_offset()
        committed = [
            record
            for record in kept
            if record.offset < stable and outcomes[record.offset] is ControlType.COMMIT
        ]
        self._check_latest({one.key: one for one in committed if one.key is not None})
        self._check_gone({*(record.offset for record in kept), *self._marked()})
        assert self._read_committed(stable) == committed
        if self.run is None:
            dirty = self.first_dirty_offset
            assert all(outcomes[one.offset] is ControlType.COMMIT for one in kept if
                       one.offset < dirty)  # fmt: skip
        return kept

    def _marked(self) -> list[int]:
        return [offset for offset, place in enumerate(self.places) if place.marks is not None]

    def _read_committed(self, stable: int) -> list[Record]:
        """All that an application gets of the log, by fetches of some size."""
        position = self.log.log_start_offset
        max_bytes = self.random.choice([1, 300, 1000, 1 << 20])
        records: list[Record] = []
        while position < stable:
            found = fetch_committed(self.log, position, stable, max_bytes)
            records += found.records
            position = found.next_offset
        return records
