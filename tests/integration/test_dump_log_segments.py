"""Kafka's own DumpLogSegments reads every file of a log, whatever the log went through."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.log.log import PartitionLog
from kohort.cli import main
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.processes.java_process import JavaProcess
from tests.support.records.storage_tools import WALL_MS, append, open_log, settings

COUNT = 300
CONFIG = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "segment_bytes": 12_000}
Dump = Callable[..., str]


@pytest.fixture(scope="module")
def dump() -> Iterator[Dump]:
    """Run the tool on files of a directory, by suffix, and return what it prints."""
    with JavaProcess("ToolRunner", "tools") as process:

        def run(directory: Path, suffix: str, *options: str) -> str:
            files = ",".join(map(str, sorted(directory.glob(f"*{suffix}"))))
            answer = process.call(
                **{"class": "org.apache.kafka.tools.DumpLogSegments"},
                args=["--files", files, *options],
                stdin="",
            )
            assert answer["exit"] == 0, answer["err"]
            # What does not fit is told on standard error, whatever the exit code.
            text: str = answer["out"] + answer["err"]
            return text

        yield run


def written(directory: Path) -> PartitionLog:
    """A log of three records per batch in all codecs, from an idempotent producer."""
    log = open_log(OsFileSystem(), directory, config=settings(**CONFIG))
    for number in range(COUNT):
        records = [
            Record(
                b"value %d" % number,
                b"key %d" % (number % 5 + which),
                (("h", b"x"),),
                WALL_MS + number,
            )
            for which in range(2)
        ]
        records.append(Record(None, b"gone %d" % number, timestamp=WALL_MS + number))
        batch = encode_batch(
            records,
            codec=list(CompressionType)[number % 5],
            producer_id=77,
            producer_epoch=3,
            base_sequence=number * 3,
        )
        append(log, batch)
    return log


def closed(directory: Path) -> PartitionLog:
    log = written(directory)
    log.close()
    return log


def recovered(directory: Path) -> PartitionLog:
    log = written(directory)
    last = log.segments[-1].path(".log")
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()
    with Path(last).open("ab") as file:
        file.write(b"torn")
    log = open_log(OsFileSystem(), directory, clean=False, config=settings(**CONFIG))
    log.close()
    return log


def compacted(directory: Path) -> PartitionLog:
    log = written(directory)
    plan = plan_compaction(log, first_dirty_offset=0, up_to_offset=COUNT * 3, wall_ms=WALL_MS)
    assert plan is not None
    run = Compaction(log, plan, memory_bytes=1 << 20, wall_ms=WALL_MS)
    while run.work():
        run.swap(wall_ms=WALL_MS)
    log.close()
    log.remove_deleted_files(wall_ms=WALL_MS + 10**9)
    return log


@pytest.mark.parametrize("make", [closed, recovered, compacted])
def test_every_file_of_a_log_is_as_kafka_expects_it(
    tmp_path: Path,
    dump: Dump,
    make: Callable[[Path], PartitionLog],
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = tmp_path / "topic-0"
    log = make(directory)
    assert len(log.segments) > 3

    records = dump(directory, ".log", "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in records
    files = map(str, sorted(directory.glob("*.log")))
    assert main(["dump-log", "--records", *files]) == 0
    kinds = ("Dumping ", "baseOffset: ", "| offset: ")
    expected = [line for line in records.splitlines() if line.startswith(kinds)]
    assert capsys.readouterr().out.splitlines() == expected
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+) ", records, re.MULTILINE)]
    if make is compacted:
        assert offsets == sorted(set(offsets))
        assert set(range(2, COUNT * 3, 3)) <= set(offsets), "tombstones wait for their time"
        assert len(offsets) < COUNT * 2
    else:
        assert offsets == list(range(COUNT * 3))
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) ", records, re.MULTILINE)
    assert [int(base) for base, _ in batches[1:]] == [int(last) + 1 for _, last in batches[:-1]]

    for suffix in (".index", ".timeindex"):
        entries = dump(directory, suffix)
        assert len(re.findall(r"(?m)^(?:offset|timestamp): ", entries)) > 3
        for text in (
            entries,
            dump(directory, suffix, "--index-sanity-check"),
            dump(directory, suffix, "--verify-index-only"),
        ):
            assert "mismatch" not in text.lower()
            assert "not found" not in text.lower()
            assert "out of order" not in text.lower()

    snapshots = dump(directory, ".snapshot")
    assert "producerId: 77 producerEpoch: 3 " in snapshots
    assert f"lastSequence: {COUNT * 3 - 1} lastOffset: {COUNT * 3 - 1} offsetDelta: 2 " in snapshots


def test_damaged_batches_are_marked_and_a_torn_one_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = closed(tmp_path / "topic-0")
    path = Path(log.segments[0].path(".log"))
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content[:-1])
    assert main(["dump-log", str(path)]) == 1
    printed = capsys.readouterr()
    flags = re.findall(r"isvalid: (\w+)", printed.out)
    assert (flags[0], set(flags[1:])) == ("false", {"true"})
    assert " ends at " in printed.err
    assert main(["dump-log", str(tmp_path / "none.log")]) == 1


def test_a_damaged_index_is_what_the_tool_would_complain_about(tmp_path: Path, dump: Dump) -> None:
    directory = tmp_path / "topic-0"
    log = closed(directory)
    path = Path(log.segments[0].path(".index"))
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    assert "mismatch" in dump(directory, ".index", "--verify-index-only").lower()
