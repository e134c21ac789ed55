"""What a log knows of transactions, against a model that looks at the whole of it each time.

However a log is stopped and opened again: which transactions are open, which were aborted, and what
each producer may send, are what the batches say that are in it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.checkpoints.producer_snapshot import read_snapshot
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.errors import KafkaError
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.property.lived import lived
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    marker_of,
    memory_log,
    open_log,
    settings,
)

STEPS_OF_A_LIFE = 120
LIVES_SHORT = 30
LIVES_LONG = 4_000
PRODUCERS = range(1, 6)
CONFIG = {"segment_bytes": 700}


class Batch(NamedTuple):
    offset: int
    next_offset: int
    producer_id: int
    epoch: int
    is_transactional: bool = False
    marks: ControlType | None = None


@dataclass
class Model:
    """What a list of batches says, seen from its beginning to its end."""

    open: dict[int, int] = field(default_factory=dict)
    """Producer id -> first offset."""
    epochs: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def read(self, batches: list[Batch]) -> "Model":
        for batch in batches:
            if batch.producer_id < 0:
                continue
            self.epochs[batch.producer_id] = batch.epoch
            if batch.marks is None:
                if batch.is_transactional:
                    self.open.setdefault(batch.producer_id, batch.offset)
                continue
            first = self.open.pop(batch.producer_id, None)
            if first is not None and batch.marks is ControlType.ABORT:
                stable = min(self.open.values(), default=batch.next_offset)
                entry = AbortedTransaction(batch.producer_id, first, batch.offset, stable)
                self.aborted.append(entry)
        return self


class TransactionalLife:
    """One log in which transactions begin and end, and which is stopped now and then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log: PartitionLog
        self.files: SimulatedFileSystem
        self.log, self.files = memory_log(**CONFIG)
        self.batches: list[Batch] = []
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (20, self.send), (12, self.mark), (2, self.roll), (3, self.flush),
            (1, self.delete_records), (2, self.stop), (2, self.kill), (2, self.lose_power),
            (1, self.damage_an_index),
        ]  # fmt: skip
        weights, works = zip(*acts, strict=True)
        work = self.random.choices(works, weights)[0]
        work()
        self.counts[work.__name__] += 1
        self.check()

    def send(self) -> None:
        random = self.random
        producer_id = random.choice([-1, *PRODUCERS])
        known = self.log.producers.get(producer_id)
        epoch = sequence = -1
        if producer_id >= 0:
            epoch = (0 if known is None else known.producer_epoch) + (random.random() < 0.1)
            last = known.batches[-1] if known is not None and known.batches else None
            is_same = known is not None and epoch == known.producer_epoch
            sequence = last.last_sequence + 1 if last is not None and is_same else 0
        batch = encode_batch(
            [Record(b"x" * random.randrange(60))] * random.randrange(1, 4),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer_id >= 0 and random.random() < 0.8,
        )
        header = read_header(batch)
        try:
            self.log.producers.check(header)
        except KafkaError:
            self.counts["refused"] += 1
            return
        appended = append(self.log, batch)
        next_offset = appended.last_offset + 1
        transactional = header.is_transactional
        self.batches.append(
            Batch(appended.base_offset, next_offset, producer_id, epoch, transactional)
        )

    def mark(self) -> None:
        random = self.random
        producer_id = random.choice(PRODUCERS)
        known = self.log.producers.get(producer_id)
        epoch = 0 if known is None else known.producer_epoch
        version = random.choice([1, 2])
        epoch += version - 1
        self.log.producers.check_marker(
            producer_id, epoch, coordinator_epoch=0, transaction_version=version
        )
        result = random.choice([ControlType.COMMIT, ControlType.ABORT, ControlType.ABORT])
        offset = append(self.log, marker_of(result, producer_id, epoch)).base_offset
        self.batches.append(Batch(offset, offset + 1, producer_id, epoch, True, result))

    def roll(self) -> None:
        self.log.roll(wall_ms=WALL_MS)

    def flush(self) -> None:
        self.log.flush()

    def delete_records(self) -> None:
        self.log.flush()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int((end - start) * self.random.random() ** 2)
        self.log.delete_records_before(offset, wall_ms=WALL_MS)
        self.log.flush()

    def stop(self) -> None:
        self.log.close()
        self._reopen(clean=True)

    def kill(self) -> None:
        self.files = self.files.copy()
        self._reopen(clean=False)

    def lose_power(self) -> None:
        self.files = self.files.copy()
        self.files.lose_power(self.random.randrange)
        self._reopen(clean=False)

    def damage_an_index(self) -> None:
        """While the broker is down; it notices what cannot be right."""
        self.log.close()
        segments = self.log.segments
        # Without the beginning of the log, what was open is known from a snapshot alone, one that a
        # loss of power has left whole.
        known_from = 0 if segments[0].base_offset == 0 else min(self._snapshots(), default=1 << 60)
        present = {entry.name for entry in self.files.entries("/data/t-0")}
        paths = [
            segment.aborted.path
            for segment in segments
            if segment.aborted is not None
            and segment.base_offset >= known_from
            and segment.aborted.path.rpartition("/")[2] in present
        ]
        if paths:
            file = self.files.file(self.random.choice(paths))
            size_bytes = file.size()
            if self.random.random() < 0.5:
                # It may have been cut before, and was not read since.
                file.truncate(max(0, self.random.choice([size_bytes - 1, size_bytes - 33])))
            else:
                file.pwritev([b"\x80"], self.random.choice([0, 1, 18]))
            self.counts["damaged"] += 1
        self._reopen(clean=True)

    def _snapshots(self) -> list[int]:
        names = [entry.name for entry in self.files.entries("/data/t-0")]
        offsets = [int(name[:20]) for name in names if name.endswith(".snapshot")]
        return [offset for offset in offsets if self._is_whole(offset)]

    def _is_whole(self, offset: int) -> bool:
        try:
            read_snapshot(self.files, "/data/t-0", offset)
        except CorruptFileError:
            return False
        return True

    def _reopen(self, *, clean: bool) -> None:
        before = self.log.log_end_offset
        self.log = open_log(
            self.files,
            clean=clean,
            recovery_point=self.log.flushed_offset,
            log_start_offset=self.log.log_start_offset,
            config=settings(**CONFIG),
        )
        end_offset = self.log.log_end_offset
        assert clean <= (end_offset == before)
        self.batches = [batch for batch in self.batches if batch.next_offset <= end_offset]
        self.counts["torn"] += end_offset < before

    def finish(self) -> None:
        """Each step is checked."""

    def check(self) -> None:
        log, model = self.log, Model().read(self.batches)
        producers = log.producers
        opened = {one.producer_id: one.first_offset for one in producers.open_transactions()}
        assert opened == model.open
        for producer_id, epoch in model.epochs.items():
            entry = producers.get(producer_id)
            assert entry is not None
            assert entry.producer_epoch == epoch
        start, end = log.log_start_offset, log.log_end_offset
        producers.spans.settle(end)
        stable = max(start, min([*model.open.values(), end]))
        assert producers.spans.last_stable_offset(end, start) == stable
        for _ in range(3):
            low, high = sorted(self.random.randrange(start, end + 1) for _ in "ab")
            expected = [
                one for one in model.aborted if one.last_offset >= low and one.first_offset < high
            ]
            found = log.aborted.reading(low, high).read()
            self.counts["aborted"] += len(found)
            assert found == expected


def test_a_log_knows_its_transactions_however_it_is_opened(long_form: bool) -> None:
    lives = LIVES_LONG if long_form else LIVES_SHORT
    counts = lived(TransactionalLife, lives=lives, steps=STEPS_OF_A_LIFE)
    print(dict(counts))
    for what in ("aborted", "torn", "damaged", "refused", "lose_power", "kill"):
        assert counts[what] > 0, what
