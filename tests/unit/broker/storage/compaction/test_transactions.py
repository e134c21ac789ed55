"""What becomes of transactions and their markers when a log is compacted again and again."""

import errno
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment import transaction_index
from kohort.protocol.records.batch import BatchHeader, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import Operation, SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    marker_of,
    memory_log,
    open_log,
    read_all,
    settings,
)

DAY_MS = 86_400_000
CONFIG: dict[str, object] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 100_000,
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": DAY_MS,
}


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Log:
    """A compacted log with a segment wherever a test wants one."""

    log: PartitionLog
    files: SimulatedFileSystem
    wall_ms: int = WALL_MS
    clean: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def send(self, key: bytes, *, by: int = -1, transactional: bool = True) -> int:
        epoch = self.epochs.setdefault(by, 0) if by >= 0 else -1
        sequence = self.sequences.get(by, 0) if by >= 0 else -1
        batch = encode_batch(
            [Record(b"%d" % self.log.log_end_offset, key, timestamp=self.wall_ms)],
            producer_id=by,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=by >= 0 and transactional,
        )
        self.sequences[by] = sequence + 1
        return append(self.log, batch, wall_ms=self.wall_ms).base_offset

    def end(self, by: int, result: ControlType, *, raises_epoch: bool = False) -> int:
        if raises_epoch:
            self.epochs[by] += 1
            self.sequences[by] = 0
        batch = marker_of(result, by, self.epochs[by], timestamp=self.wall_ms)
        return append(self.log, batch, wall_ms=self.wall_ms).base_offset

    def roll(self) -> None:
        self.log.roll(wall_ms=self.wall_ms)

    def start(self) -> Compaction:
        """A run over all but the active segment, which is a new one."""
        self.send(b"dirt")
        self.roll()
        end, spans = self.log.log_end_offset, self.log.producers.spans
        spans.settle(end)
        plan = plan_compaction(
            self.log,
            first_dirty_offset=self.clean,
            up_to_offset=spans.last_stable_offset(end, 0),
            wall_ms=self.wall_ms,
        )
        assert plan is not None
        return Compaction(self.log, plan, memory_bytes=1 << 20, wall_ms=self.wall_ms)

    def compact(self) -> None:
        run = self.start()
        while run.work():
            run.swap(wall_ms=self.wall_ms)
        run.close()
        self.clean = run.cleaned_up_to

    def header(self, offset: int) -> BatchHeader | None:
        """The batch that begins there, unless a filler does."""
        for batch in read_all(self.log, max_bytes=1 << 20):
            header = read_header(batch)
            if header.base_offset == offset and header.has_producer_id:
                return header
        return None

    def offsets(self) -> list[int]:
        """Every record of a user but the dirt that a run needs."""
        return [
            record.offset
            for batch in read_all(self.log, max_bytes=1 << 20)
            if not read_header(batch).is_control
            for record in decode_records(batch)
            if record.key != b"dirt"
        ]

    def aborted(self) -> list[AbortedTransaction]:
        return self.log.aborted.reading(0, self.log.log_end_offset).read()

    def indexes(self) -> list[str]:
        names = [entry.name for entry in self.files.entries("/data/t-0")]
        return [name for name in names if name.endswith(".txnindex")]


@pytest.fixture
def log() -> Log:
    return Log(*memory_log(**CONFIG))


COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def states(log: Log, offset: int) -> str:
    """How a marker stands."""
    header = log.header(offset)
    if header is None:
        return "gone"
    assert header.is_control
    assert header.is_transactional
    if not header.record_count:
        return "empty"
    if not header.has_delete_horizon:
        return "as written"
    return f"goes in {header.base_timestamp - log.wall_ms}"


def test_an_abort_marker_goes_as_late_as_a_tombstone(log: Log) -> None:
    """In the round after its data it gets its horizon, and loses its entry of the index."""
    log.send(b"k", by=1)
    marker = log.end(1, ABORT)
    log.send(b"x", by=1, transactional=False)
    entry = AbortedTransaction(1, 0, marker, marker + 1)
    log.compact()
    assert (states(log, marker), log.aborted()) == ("as written", [entry])
    assert log.indexes() == ["00000000000000000000.txnindex"]
    log.compact()
    assert (states(log, marker), log.aborted()) == (f"goes in {DAY_MS}", [])
    assert log.indexes() == []
    log.wall_ms += DAY_MS - 1
    log.compact()
    assert states(log, marker) == "goes in 1"
    log.wall_ms += 1
    log.compact()
    assert states(log, marker) == "gone"
    assert log.offsets() == [2]


@pytest.mark.parametrize("result", [COMMIT, ABORT])
def test_the_last_trace_of_a_producer_stays_as_an_empty_marker(
    log: Log, result: ControlType
) -> None:
    """And with it its epoch, which a start learns from there if nothing else tells it."""
    log.send(b"k", by=1)
    marker = log.end(1, result, raises_epoch=True)
    log.send(b"k")
    for _ in range(3):
        log.compact()
        log.wall_ms += 2 * DAY_MS
    assert states(log, marker) == "empty"
    header = log.header(marker)
    assert header is not None
    assert (header.attributes, header.record_count, header.size_bytes) == (0x30, 0, 61)
    log.compact()
    assert states(log, marker) == "empty"
    log.log.flush()
    for name in [entry.name for entry in log.files.entries("/data/t-0")]:
        if name.endswith(".snapshot"):
            log.files.remove(f"/data/t-0/{name}")
    again = open_log(log.files, clean=False, config=settings(**CONFIG))
    producer = again.producers.get(1)
    assert producer is not None
    assert (producer.producer_epoch, list(producer.batches)) == (1, [])
    assert again.producers.open_transactions() == []


def test_what_was_met_before_a_group_is_known_when_it_is_made_once_more(log: Log) -> None:
    """This happens if retention deletes a segment of the group meanwhile."""
    log.log.config = settings(**CONFIG | {"segment_bytes": 400})
    log.send(b"k", by=1)
    log.send(b"filling" * 40)
    log.roll()
    marker = log.end(1, COMMIT)
    log.send(b"x", by=1)
    log.end(1, COMMIT)
    run = log.start()
    attempts = 0
    while run.work():
        if run._ready is not None and run._ready[0][0].base_offset == marker:
            attempts += 1
            if attempts == 1:
                run._ready[1].discard()
                run._ready = None
        run.swap(wall_ms=log.wall_ms)
    run.close()
    assert attempts == 2
    assert states(log, marker) == "as written"


@pytest.mark.parametrize("stop", range(1, 60))
def test_an_entry_of_the_index_never_outlives_its_marker(stop: int) -> None:
    """A client would leave out all that the producer sent until its next abort."""
    log = Log(*memory_log(**CONFIG))
    log.send(b"k", by=1)
    marker = log.end(1, ABORT)
    log.send(b"x", by=1)
    log.end(1, COMMIT)
    log.compact()
    assert len(log.aborted()) == 1
    # The entry goes in the next round, and the process is killed somewhere in it.
    left = stop

    def count_down(_: Operation) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            log.files.on_operation = None
            raise Killed

    run = log.start()
    log.files.on_operation = count_down
    try:
        while run.work():
            run.swap(wall_ms=log.wall_ms)
    except Killed:
        log.files = log.files.copy()
        log.log = open_log(
            log.files, clean=True, recovery_point=log.log.flushed_offset, config=settings(**CONFIG)
        )
        state = states(log, marker)
        assert log.aborted() == [] or state == "as written"
    finally:
        log.files.on_operation = None


@pytest.mark.parametrize("stop", range(1, 9))
def test_a_replacement_that_fails_ends_the_log_if_a_start_would_complete_it(
    stop: int, log: Log
) -> None:
    log.send(b"k")
    kept = log.send(b"k")
    run = log.start()
    assert run.work()
    left = stop

    def fail(operation: Operation) -> None:
        nonlocal left
        left -= operation == "rename"
        if left == 0 and operation == "rename":
            raise OSError(errno.EIO, "the disk failed")

    log.files.on_operation = fail
    with suppress(StorageError):
        run.swap(wall_ms=log.wall_ms)
    log.files.on_operation = None
    assert left <= 0
    names = [entry.name for entry in log.files.entries("/data/t-0")]
    assert log.log.is_usable is not any(name.endswith(".log.swap") for name in names)
    if log.log.is_usable:
        assert kept in log.offsets()


def test_a_long_index_is_read_by_the_steps_of_a_run_not_before(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "LONG_ENTRIES", 1)
    for _ in range(2):
        log.send(b"a", by=1)
        log.end(1, ABORT)
    log.log.close()
    reopened = open_log(log.files, config=settings(**CONFIG))
    again = Log(reopened, log.files)
    run = again.start()
    (index, *_) = [one.aborted for one in reopened.segments if one.aborted is not None]
    assert index is not None
    before = index.takes_long
    assert run.work()
    assert (before, index.takes_long) == (True, False)
    run.swap(wall_ms=again.wall_ms)
    while run.work():
        run.swap(wall_ms=again.wall_ms)
    run.close()
    assert again.offsets() == []


@pytest.mark.parametrize("long_entries", [1, 100])
def test_a_run_with_a_damaged_index_reads_the_batches_instead(
    long_entries: int, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_index, "LONG_ENTRIES", long_entries)
    for _ in range(2):
        log.send(b"a", by=1)
        log.end(1, ABORT)
    log.log.close()
    (name,) = log.indexes()
    file = log.files.file(f"/data/t-0/{name}")
    file.pwritev([bytes(file.size())], 0)
    again = Log(open_log(log.files, config=settings(**CONFIG)), log.files)
    again.compact()
    assert again.offsets() == []
