"""The directory of a watcher: it continues where an earlier run ended, however that ended."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort.insight.history_files import histories
from kohort.watch import history_directory
from kohort.watch.history_directory import HistoryDirectory
from kohort.watch.store import StoreError

CLUSTER = "cluster-1"


def record(sequence: int, offset: int, group: str = "g") -> dict[str, Any]:
    observed = {"by": [], "partition": 0, "offset": offset}
    return {"schema": 1, "group": group, "sequence": sequence, "observed": observed}


def write(path: Path, *records: dict[str, Any]) -> None:
    with HistoryDirectory(path, CLUSTER) as directory:
        for one in records:
            directory.offer(one)
        directory.flush()


def stored(path: Path) -> list[dict[str, Any]]:
    """Return what other commands read."""
    files = histories([str(path)], None)  # type: ignore[arg-type]
    return [json.loads(line) for _, lines in files for _, line in lines]


def test_a_later_run_adds_only_what_is_new(tmp_path: Path) -> None:
    write(tmp_path, record(1, 5), record(1, 2, "h"))
    write(tmp_path, record(1, 5), record(2, 7), record(1, 2, "h"))
    assert stored(tmp_path) == [record(1, 5), record(1, 2, "h"), record(2, 7)]


def test_a_line_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    records = [record(1, 5), record(2, 6), record(3, 6)]
    write(tmp_path, *records)
    file = tmp_path / "history.jsonl"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        write(tmp_path, *records)
        assert file.read_bytes() == whole


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A write beyond it is cut short, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_could_not_be_written_whole_leaves_no_part(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    with HistoryDirectory(tmp_path, CLUSTER) as directory:
        directory.offer(record(1, 5))
        directory.flush()
        whole = file.read_bytes()
        directory.offer(record(2, 6))
        with file_size_limit(len(whole) + 20), pytest.raises(StoreError, match="too large"):
            directory.flush()
        assert file.read_bytes() == whole
        directory.flush()
    assert stored(tmp_path) == [record(1, 5), record(2, 6)]


def test_segments_have_a_size_and_a_number_and_the_oldest_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_directory, "SEGMENT_BYTES", 300)
    monkeypatch.setattr(history_directory, "SEGMENTS_MAX", 2)
    records = [record(number, number) for number in range(1, 21)]
    for end in range(1, 21):
        write(tmp_path, *records[:end])
    kept = stored(tmp_path)
    assert 5 <= len(kept) < 20
    assert kept == records[-len(kept) :]
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 3
    assert all(file.stat().st_size <= 300 for file in files)


def test_two_watchers_do_not_write_to_one_directory(tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match="another `kohort watch`")
    with HistoryDirectory(tmp_path, CLUSTER), refused:
        HistoryDirectory(tmp_path, CLUSTER)
    write(tmp_path, record(1, 5))


def test_the_history_of_another_cluster_is_not_continued(tmp_path: Path) -> None:
    write(tmp_path, record(1, 5))
    with pytest.raises(ValueError, match="cluster-1"):
        HistoryDirectory(tmp_path, "cluster-2")
    write(tmp_path, record(2, 6))


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "[1]\n",
        "plain text\n",
        "without a line end",
        '{"group":"g","sequence":1,"observed":{"partition":[],"offset":"x"}}\n',
        "[" * 100_000 + "\n",
    ],
)
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match="is not a history"):
        HistoryDirectory(tmp_path, CLUSTER)
    assert file.read_text() == text


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.touch()
    with pytest.raises(ValueError, match=r"DIRECTORY/history\.jsonl"):
        HistoryDirectory(file, CLUSTER)
