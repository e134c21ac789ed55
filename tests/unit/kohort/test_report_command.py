"""`kohort groups report` over files: no broker, no Spark, no Java, no packages for plots."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.cli import main
from kohort.cli.groups.reporting import file_name
from tests.unit.kohort.without_spark import said_without_spark


def record(sequence: int, kind: str, member_id: str, at_s: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a record.
    at_ms = 1_767_607_200_000 + at_s * 1_000
    client_id = member_id.rpartition("-")[0]
    trigger = {"kind": kind, "at_ms": at_ms, "member_id": member_id, "client_id": client_id}
    made = {"schema": 1, "kind": "rebalance", "group": "billing", "outcome": "stable"}
    made |= {"previous_generation": sequence - 1, "previous_state": "Stable"}
    return {**made, "sequence": sequence, "started_at_ms": at_ms, "trigger": trigger, **more}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    records = [
        record(1, "member_added", "a-1", 0),
        record(2, "member_added", "b-1", 20),
        record(3, "member_left", "a-1", 600),
        record(4, "member_added", "a-2", 620),
        record(5, "member_added", "c-1", 900, outcome="running"),
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def test_a_page_of_one_group_is_made_without_spark(history: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    done = said_without_spark("report", "billing", "--from", history, "--output", output)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        f"{output}: 4 rebalances of group billing",
        "1 record left out: ongoing, or of another schema",
    ]
    text = output.read_text(encoding="utf-8")
    assert "Why billing rebalanced, and what to change" in text
    assert "because member b-1 joined" in text
    assert "Quality of the advice, and other settings" in text
    assert "check: under the recorded settings" in text.lower()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["search", "--from", "{history}"], 1, "no group 'search'"),
        (["billing", "--from", "/nowhere/x.jsonl"], 2, "/nowhere/x.jsonl"),
        (["billing", "--from", "{history}", "--output", "/nowhere/x.html"], 2, "no such directory"),
        (["billing", "--from", "{history}", "--known", "static=1"], 2, "--known"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    arguments: list[str], code: int, told: str, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(history=history) for argument in arguments]
    assert main(["groups", "report", *given]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_group_that_has_not_rebalanced_has_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "history.jsonl", tmp_path / "page.html"
    source.write_text(json.dumps(record(1, "member_added", "a-1", 0, outcome="running")))
    given = ["billing", "--from", str(source), "--output", str(output)]
    assert main(["groups", "report", *given]) == 0
    assert "has not rebalanced" in capsys.readouterr().out
    assert not output.exists()


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("billing", "billing.html"),
        ("../../etc/passwd", "_.._etc_passwd.html"),
        ("a/b c", "a_b_c.html"),
        ("..", "group.html"),
        ("x" * 500, "x" * 100 + ".html"),
    ],
)
def test_a_page_has_a_name_that_stays_in_its_directory(group: str, name: str) -> None:
    assert file_name(group) == name
