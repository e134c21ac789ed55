"""Histories and logs are distinguished by their content."""

import json
from datetime import UTC
from pathlib import Path

import pytest

from kohort.insight.errors import UsageError
from kohort.insight.history_files import check, histories

BEGUN = (
    "[2024-05-06 07:08:09,500] INFO Preparing to rebalance group a in state PreparingRebalance "
    "with old generation 41 (reason: Adding new member w-1 with group instance id None)"
)


def events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for _, found in histories([str(path)], UTC) for _, line in found]


@pytest.mark.parametrize("text", [BEGUN, json.dumps({"log": f"{BEGUN}\n", "stream": "stdout"})])
def test_a_log_may_be_lines_of_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.log"
    path.write_text(f"{text}\n")
    (event,) = events(path)
    assert event["group"] == "a"


def test_a_history_is_returned_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"group": "a"}\n{"torn\n')
    given = [line for _, found in histories([str(path)], UTC) for _, line in found]
    assert given == [b'{"group": "a"}', b'{"torn']


def test_lines_of_a_log_that_are_not_understood_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.log"
    path.write_text("Preparing to rebalance something\n")
    assert events(path) == []
    assert "the start of a rebalance could not be parsed in 1 line" in capsys.readouterr().err


def test_a_directory_is_read_in_the_order_in_which_it_was_written(tmp_path: Path) -> None:
    for number, name in enumerate(["history-000002", "history", "history-000001"]):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"number": {number}}}\n')
    (tmp_path / "lock").write_text("")
    check([str(tmp_path)])
    assert [event["number"] for event in events(tmp_path)] == [2, 0, 1]


def test_a_directory_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no history"):
        events(tmp_path)
