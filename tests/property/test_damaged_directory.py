"""One damaged file in a data directory with transactions and compaction: nothing aborted is shown.

A directory of two topics, one of them compacted, is damaged in one file: the file is gone, cut,
has one bit or byte changed, or has the content of another file of its kind. Then the logs are
opened, read as consumers of both isolation levels do, compacted, read, closed and read once more.
No record of an aborted or open transaction is delivered to a consumer of committed records. No
committed record is missing, except those in a damaged .log, which is reported with the partition
and offsets.

A limit: until the recovery point passes a .log, or a clean stop lists it, nothing beside it says
what is in it. After a kill, the content of another .log in its place is therefore served if its
offsets fit (such damages are left out), and batches missing at its end are not reported.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from kohort.broker.storage.checkpoints.clean_shutdown import (
    mark_clean_shutdown,
    take_clean_shutdown_mark,
)
from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.filesystem import read_file
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.topics.directories import PartitionDirectories
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import Operation, SimulatedFileSystem
from tests.property.transactional_life import fetch_committed
from tests.support.records.storage_tools import WALL_MS, append, marker_of, repair_indexes, settings

DAMAGES_SHORT: Final = 60
DAMAGES_LONG: Final = 10_000

ROOT: Final = Path("/data")
PARTITIONS: Final = [("kept", 0), ("kept", 1), ("keyed", 0), ("keyed", 1)]
IDS: Final = {"kept": b"k" * 16, "keyed": b"c" * 16}
CONFIGS: Final = {
    "kept": settings(segment_bytes=900, retention_ms=-1, index_interval_bytes=150),
    "keyed": settings(
        segment_bytes=900,
        cleanup_policy=("compact",),
        index_interval_bytes=150,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
        file_delete_delay_ms=0,
    ),
}
PRODUCERS: Final = (7, 8, 9)
KEYS: Final = [b"a", b"b", b"c", b"d"]


class Killed(BaseException):
    """The process ends here."""


class Truth(NamedTuple):
    key: bytes
    value: bytes
    is_committed: bool
    marker_offset: int
    """Offset of its transaction's marker; its own offset if it is in no transaction."""


@dataclass
class Written:
    records: dict[int, Truth] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    """Where the segments of the undamaged log start."""
    start: int = 0
    end: int = 0
    stable: int = 0
    """The last stable offset."""
    flushed: int = 0
    """The recovery point in the checkpoint."""

    def segment_of(self, base: int) -> range:
        """The offsets from a base offset to that of the next segment."""
        return range(base, min([one for one in self.bases if one > base], default=self.end))


class Writer:
    def __init__(self, log: PartitionLog, written: Written, random: Random, name: str) -> None:
        self.log = log
        self.written = written
        self.random = random
        self.name = name
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, tuple[ControlType, list[int]]] = {}
        """Producer id -> how its transaction will end, and its offsets."""

    def step(self) -> None:
        if self.open and self.random.random() < 0.3:
            self.end(self.random.choice(sorted(self.open)))
        else:
            self.send()

    def send(self) -> None:
        random, first = self.random, self.log.log_end_offset
        producer_id = random.choice([-1, *PRODUCERS])
        outcome, offsets = ControlType.COMMIT, list[int]()
        if producer_id >= 0:
            outcome, offsets = self.open.setdefault(
                producer_id, (random.choice(list(ControlType)), [])
            )
        count = random.randrange(1, 4)
        records = [
            Record(
                f"{self.name} {first + number} {outcome.name}".encode(),
                random.choice(KEYS),
                (),
                WALL_MS + first + number,
                first + number,
            )
            for number in range(count)
        ]
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, -1),
            base_sequence=self.sequences.get(producer_id, -1),
            is_transactional=producer_id >= 0,
        )
        append(self.log, batch)
        for record in records:
            assert record.key is not None
            assert record.value is not None
            self.written.records[record.offset] = Truth(
                record.key, record.value, producer_id < 0, record.offset
            )
            if producer_id >= 0:
                offsets.append(record.offset)
        if producer_id >= 0:
            self.sequences[producer_id] += count

    def end(self, producer_id: int) -> None:
        outcome, offsets = self.open.pop(producer_id)
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0
        marker_offset = self.log.log_end_offset
        append(self.log, marker_of(outcome, producer_id, self.epochs[producer_id]))
        for offset in offsets:
            self.written.records[offset] = self.written.records[offset]._replace(
                is_committed=outcome is ControlType.COMMIT, marker_offset=marker_offset
            )


@dataclass
class Sample:
    """A data directory that was left in some way, and the truth about it."""

    files: SimulatedFileSystem
    written: dict[str, Written]
    is_clean: bool


def opened(
    files: SimulatedFileSystem, *, is_clean: bool, only: str | None = None
) -> dict[str, PartitionLog]:
    directories = PartitionDirectories(files, ROOT, clean_shutdown=is_clean)
    return {
        f"{topic}-{index}": directories.open_log(
            topic, index, IDS[topic], CONFIGS[topic], wall_ms=WALL_MS
        )
        for topic, index in PARTITIONS
        if only in {None, f"{topic}-{index}"}
    }


def note_offsets(
    files: SimulatedFileSystem, logs: dict[str, PartitionLog], *, is_last: bool
) -> None:
    directories = PartitionDirectories(files, ROOT, clean_shutdown=False)
    for topic, index in PARTITIONS:
        directories.note(logs[f"{topic}-{index}"], topic, index)
    directories.write_checkpoints(*directories.notes())
    if is_last:
        directories.write_last_notes()


def lived(seed: int) -> Sample:
    """A directory with a history, left after a clean stop, a kill, or a kill in a compaction."""
    random = Random(seed)
    files = SimulatedFileSystem()
    logs = opened(files, is_clean=False)
    written = {name: Written() for name in logs}
    writers = [Writer(logs[name], written[name], random, name) for name in logs]

    def write(steps: int) -> None:
        for _ in range(steps):
            for writer in writers:
                writer.step()

    write(60)
    if random.random() < 0.5:
        compact(logs["keyed-0"])
    logs["kept-0"].delete_records_before(random.randrange(20), wall_ms=WALL_MS)
    write(random.randrange(30))
    for name, log in logs.items():
        log.flush()
        written[name].flushed = log.log_end_offset
    note_offsets(files, logs, is_last=False)
    way = random.choice(["stopped", "killed", "killed in a compaction"])
    write(random.randrange(-5, 20))
    for name, log in logs.items():
        written[name].start = log.log_start_offset
        written[name].end = written[name].stable = log.log_end_offset
        written[name].bases = [segment.base_offset for segment in log.segments]
    if way == "stopped":
        stop(files, logs, written)
    elif way == "killed in a compaction":
        compact_and_be_killed(files, logs["keyed-1"], random.randrange(1, 12))
    return Sample(files.copy(), written, way == "stopped")


def stop(
    files: SimulatedFileSystem, logs: dict[str, PartitionLog], written: dict[str, Written]
) -> None:
    for name, log in logs.items():
        # Transactions may stay open.
        written[name].stable = stable_offset(log)
        log.close()
        written[name].flushed = log.log_end_offset
    note_offsets(files, logs, is_last=True)
    mark_clean_shutdown(files, str(ROOT))


def stable_offset(log: PartitionLog) -> int:
    spans = log.producers.spans
    spans.settle(log.log_end_offset)
    return spans.last_stable_offset(log.log_end_offset, log.log_start_offset)


def compact(log: PartitionLog) -> None:
    """Compact a log as the broker does, if there is anything to compact."""
    repair_indexes(log)
    stable = stable_offset(log)
    plan = plan_compaction(log, first_dirty_offset=0, up_to_offset=stable, wall_ms=WALL_MS)
    if plan is None:
        return
    run = Compaction(log, plan, memory_bytes=1 << 16, wall_ms=WALL_MS)
    try:
        while run.work():
            run.swap(wall_ms=WALL_MS)
    finally:
        run.close()


def compact_and_be_killed(files: SimulatedFileSystem, log: PartitionLog, renames: int) -> None:
    left = renames

    def count_down(operation: Operation) -> None:
        nonlocal left
        left -= operation == "rename"
        if left <= 0:
            raise Killed

    files.on_operation = count_down
    try:
        compact(log)
    except Killed:
        pass
    finally:
        files.on_operation = None


class Damage(NamedTuple):
    path: str
    kind: str
    content: bytes | None
    """The new content; None if the file is removed."""


def damages(sample: Sample, random: Random) -> Iterator[Damage]:
    """Draw damages for ever: first of a kind of file, then of a file of this kind."""
    kinds: dict[str, list[str]] = {}
    for path in sample.files.paths():
        kinds.setdefault(kind_of(path), []).append(path)
    while True:
        paths = kinds[random.choice(sorted(kinds))]
        path = random.choice(paths)
        content = read_file(sample.files, path)
        changed = bytearray(content)
        kind = random.choice(["absent", "cut", "bit", "byte", "swapped"])
        if kind == "absent":
            yield Damage(path, kind, None)
        elif kind == "swapped":
            others = [read_file(sample.files, one) for one in paths if one != path]
            others = [one for one in others if one != content]
            if others:
                yield Damage(path, kind, random.choice(others))
        elif content:
            place = random.randrange(len(content))
            if kind == "cut":
                yield Damage(path, kind, content[:place])
            elif kind == "bit":
                changed[place] ^= 1 << random.randrange(8)
                yield Damage(path, kind, bytes(changed))
            else:
                changed[place] ^= random.randrange(1, 256)
                yield Damage(path, kind, bytes(changed))


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    found = re.fullmatch(r"\d{20}(\..*)", name)
    return found[1] if found else name


def done_to(sample: Sample, damage: Damage) -> SimulatedFileSystem:
    files = sample.files.copy()
    files.remove(damage.path)
    if damage.content is not None:
        files.create(damage.path).pwritev([damage.content], 0)
    return files


def hidden_by(sample: Sample, damage: Damage) -> dict[str, range]:
    """The offsets that a damage may hide, by partition: those in a damaged .log."""
    name = damage.path.split("/")[2]
    if ".log" not in kind_of(damage.path) or name not in sample.written:
        return {}
    written = sample.written[name]
    base = int(damage.path.rpartition("/")[2][:20])
    hidden = written.segment_of(base)
    if ".log." in damage.path:
        # A replacement that is decided stands for all segments that it was made from.
        hidden = range(base, written.end)
    if not sample.is_clean and hidden.stop > written.flushed:
        # What is beyond the recovery point is cut off at the first damaged batch, as after a loss
        # of power.
        hidden = range(base, written.end)
    return {name: hidden}


def is_beyond_recovery_point(sample: Sample, damage: Damage) -> bool:
    """Whether it is a .log that nothing beside it describes yet, because the broker was killed."""
    directory, _, name = damage.path.removeprefix(f"{ROOT}/").partition("/")
    if sample.is_clean or kind_of(damage.path) != ".log":
        return False
    written = sample.written[directory]
    return written.segment_of(int(name[:20])).stop > written.flushed


def looks_like_loss_of_power(sample: Sample, damage: Damage) -> bool:
    """Whether the log just ends earlier, between two batches beyond the recovery point.

    A loss of power leaves the same, of batches that were never flushed. So nothing is reported.
    """
    if damage.kind not in {"absent", "cut"} or not is_beyond_recovery_point(sample, damage):
        return False
    directory, _, name = damage.path.removeprefix(f"{ROOT}/").partition("/")
    content = damage.content or b""
    whole = sum(header.size_bytes for header, _ in split_batches(content, partial_tail=True))
    return int(name[:20]) == sample.written[directory].bases[-1] and whole == len(content)


class Seen(NamedTuple):
    """The records of a log that consumers get."""

    committed: dict[int, bytes]
    """Values by offset."""
    uncommitted: dict[int, bytes]
    problems: str


def seen(log: PartitionLog) -> Seen:
    repair_indexes(log)
    stable = stable_offset(log)
    problems = []
    committed: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < stable:
        try:
            found = fetch_committed(log, offset, stable, 400)
        except CorruptBatchError as error:
            problems.append(str(error))
            offset += 1
            continue
        committed |= {one.offset: one.value or b"" for one in found.records}
        # There may be no batch left before one of the next segments.
        offset = max(offset + 1, found.next_offset)
    uncommitted: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, 400, up_to_offset=log.log_end_offset, min_one=True)
        except CorruptBatchError as error:
            problems.append(str(error))
            offset += 1
            continue
        offset += 1
        for header, batch in split_batches(data):
            offset = max(offset, header.next_offset)
            if header.record_count and not header.is_control:
                records = decode_records(batch, header)
                uncommitted |= {one.offset: one.value or b"" for one in records}
    return Seen(committed, uncommitted, "\n".join(problems))


def check(
    written: Written,
    name: str,
    got: Seen,
    hidden: range | None,
    *,
    log_start_offset: int,
    is_clean: bool,
) -> set[int]:
    """Compare what consumers get with the truth; returns the offsets of missing records."""

    def is_hidden(offset: int) -> bool:
        return hidden is not None and offset in hidden

    truth = written.records
    # After an unclean stop the coordinator ends all transactions.
    stable = written.stable if is_clean else written.end
    for offset, value in got.committed.items():
        assert truth[offset].value == value
        assert truth[offset].is_committed, (name, offset, value)
    for offset, value in got.uncommitted.items():
        assert truth[offset].value == value
    expected = {
        offset: one
        for offset, one in truth.items()
        if max(log_start_offset, written.start) <= offset < stable and one.is_committed
    }
    if name.startswith("keyed"):
        latest = {one.key: offset for offset, one in sorted(expected.items())}
        expected = {offset: expected[offset] for offset in latest.values()}
    missing = set(expected) - got.committed.keys()
    for offset in missing:
        # The marker of a transaction is lost with a .log as well, if nothing else has its outcome.
        marker_offset = offset if is_clean else truth[offset].marker_offset
        assert is_hidden(offset) or is_hidden(marker_offset), (name, offset, truth[offset])
    return missing


def abort_open_transactions(log: PartitionLog) -> None:
    """Do what the coordinator does about transactions whose outcome it cannot tell."""
    for one in log.producers.open_transactions():
        append(log, marker_of(ControlType.ABORT, one.producer_id, one.producer_epoch))


def survives(sample: Sample, damage: Damage, caplog: pytest.LogCaptureFixture) -> bool:
    """Check everything about one damage; returns whether records were lost by it."""
    files = done_to(sample, damage)
    hidden = hidden_by(sample, damage)
    directory = damage.path.split("/")[2]
    damaged = directory if directory in sample.written else None
    caplog.clear()
    is_clean = take_clean_shutdown_mark(files, str(ROOT))
    is_silent = looks_like_loss_of_power(sample, damage)
    missing: set[int] = set()
    for is_again in (False, True):
        for name, log in opened(files, is_clean=is_clean or is_again, only=damaged).items():
            if not is_again:
                written = sample.written[name]
                assert log.log_end_offset >= (written.end if is_clean else written.flushed)
                if not is_clean:
                    abort_open_transactions(log)
            for _ in range(2):
                got = seen(log)
                lost = check(
                    sample.written[name],
                    name,
                    got,
                    hidden.get(name),
                    log_start_offset=log.log_start_offset,
                    is_clean=is_clean,
                )
                written = sample.written[name]
                # What was flushed up to its marker is proven to have been there.
                ends = [sample.written[name].records[offset].marker_offset for offset in lost]
                if ends and (not is_silent or min(ends) < sample.written[name].flushed):
                    told = f"{caplog.text}\n{got.problems}"
                    assert re.search(rf"{name}\b.*offset", told), told
                missing |= lost
                try:
                    compact(log)
                except CorruptBatchError:
                    assert name in hidden
            log.close()
    return bool(missing)


def test_a_damaged_file_shows_no_aborted_record_and_hides_no_committed_one(
    caplog: pytest.LogCaptureFixture, long_form: bool
) -> None:
    count = DAMAGES_LONG if long_form else DAMAGES_SHORT
    count_of_a_life = 100 if long_form else 15
    caplog.set_level(logging.WARNING)
    done: Counter[str] = Counter()
    lost = rebuilt = 0
    seed = 0
    while done.total() < count:
        sample = lived(seed)
        random = Random(seed)
        for number, damage in enumerate(damages(sample, random)):
            if number == count_of_a_life or done.total() == count:
                break
            if damage.kind == "swapped" and is_beyond_recovery_point(sample, damage):
                # The batches of another .log cannot be told from those that were appended last.
                continue
            try:
                is_lost = survives(sample, damage, caplog)
            except BaseException as error:
                error.add_note(f"seed {seed}, number {number}: {damage.kind} {damage.path}")
                raise
            assert not is_lost or ".log" in damage.path, damage
            lost += is_lost
            rebuilt += "rebuilt" in caplog.text
            done[f"{kind_of(damage.path)} {damage.kind}"] += 1
        seed += 1
    print(f"{count} damages: {lost} of a .log lost records, {rebuilt} led to a file being rebuilt")
    print(dict(sorted(done.items())))
    assert {".txnindex", ".snapshot", ".log"} <= {one.split()[0] for one in done}
