"""The file of a watcher: it continues where an earlier run ended, however that ended."""

from pathlib import Path
from typing import Any

import pytest

from kohort.watch.history_file import HistoryFile


def record(partition: int, offset: int, group: str = "g") -> dict[str, Any]:
    observed = {"by": [], "partition": partition, "offset": offset}
    return {"schema": 1, "group": group, "observed": observed}


def test_a_later_run_adds_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryFile(path) as file:
        assert file.add(record(0, 5))
        assert file.add(record(1, 2))
    with HistoryFile(path) as file:
        assert not file.add(record(0, 4))
        assert not file.add(record(0, 5))
        assert file.add(record(1, 3))
    assert len(path.read_text().splitlines()) == 3


def test_a_line_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryFile(path) as file:
        file.add(record(0, 5))
        file.add(record(0, 6))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with HistoryFile(path) as file:
        assert file.add(record(0, 6))
    assert path.read_bytes() == whole


def test_groups_of_a_partition_may_come_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryFile(path) as file:
        assert file.add(record(0, 6, "a"))
        assert file.add(record(0, 5, "b"))
    with HistoryFile(path) as file:
        assert not file.add(record(0, 6, "a"))
        assert not file.add(record(0, 5, "b"))


def test_of_the_records_of_one_offset_only_those_not_written_are_added(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryFile(path) as file:
        assert file.add(record(0, 5))
        assert file.add(record(0, 5))
    with HistoryFile(path) as file:
        assert not file.add(record(0, 5))
        assert not file.add(record(0, 5))
        assert file.add(record(0, 5))


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "[1]\n",
        "plain text\n",
        "without a line end",
        '{"group":"g","observed":{"partition":[],"offset":"x"}}\n',
        "[" * 100_000 + "\n",
    ],
)
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"history|Expecting"):
        HistoryFile(path)
    assert path.read_text() == text


def test_a_device_is_not_read_without_end() -> None:
    with pytest.raises(ValueError, match="not a regular file"):
        HistoryFile(Path("/dev/zero"))
