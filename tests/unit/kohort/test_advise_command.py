"""`kohort groups advise` over files: no broker, no Spark, no Java."""

import gzip
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.processes.commands import Said, said_here
from tests.unit.kohort.without_spark import said_without_spark

S = 1_000
SESSION = ("--known", "session_timeout_ms=45000")


Advise: TypeAlias = Callable[..., Said[str]]


@pytest.fixture
def advise(capsys: pytest.CaptureFixture[str]) -> Advise:
    """The command, in this process."""

    def ask(*arguments: object) -> Said[str]:
        return said_here(capsys, "groups", "advise", *map(str, arguments))

    return ask


def deploys(group: str, members: int = 2) -> list[dict[str, Any]]:
    """All members come, and are restarted one after the other: what static ones are spared."""
    records: list[dict[str, Any]] = []

    def add(kind: str, member_id: str, at_ms: int) -> None:
        client_id = member_id.rpartition("-")[0]
        trigger = {"kind": kind, "at_ms": at_ms, "member_id": member_id, "client_id": client_id}
        record = {"schema": 1, "kind": "rebalance", "group": group, "outcome": "stable"}
        at = {"sequence": len(records) + 1, "started_at_ms": at_ms}
        records.append(record | at | {"trigger": trigger})

    for number in range(members):
        add("member_added", f"{group}{number}-1", number * 20 * S)
    for number in range(members):
        add("member_left", f"{group}{number}-1", 600 * S + number * 60 * S)
        add("member_added", f"{group}{number}-2", 603 * S + number * 60 * S)
    return records


def as_lines(records: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write(as_lines(deploys("billing") + deploys("search")))
    return path


def test_a_table_tells_what_settings_come_to_and_what_to_set_without_spark(history: Path) -> None:
    done = said_without_spark("advise", "billing", "--from", history, *SESSION)
    assert done.code == 0, done.err
    told = done.out.splitlines()
    heading, recommended = told[0].split(". ", maxsplit=1)
    assert heading == "Group billing, 6 rebalances in 11 min"
    (best,) = [line for line in told if line.startswith("* static membership") and "What" in line]
    assert recommended.removeprefix("Recommended: ").split(".")[0] in best
    assert told[2].split("  ")[1] == "SETTING"
    assert told[2].endswith("CRASH NOTICED AFTER")
    assert told[3].split()[:3] == ["as", "recorded", "6"]
    (static,) = [line for line in told[4:-1] if line[2:].startswith("static membership  ")]
    assert static[1:].split()[2] == "2"
    assert "  Java (properties of the consumer)" in told
    assert any(line.startswith("check: under the recorded settings") for line in told)
    assert any(line.startswith("not known: max.poll.interval.ms") for line in told)


def test_programs_get_the_same_as_json_from_standard_input_too(
    advise: Advise, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(history) as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read())))
    told = json.loads(advise("billing", "--from", "-", "--json", *SESSION).out)

    assert told["group"] == "billing"
    assert told["history"]["rebalances"] == 6
    assert told["recorded"]["setting"]["static"] is False
    static = next(one for one in told["choices"] if one["setting"]["static"])
    assert static["rebalances"] == 2
    assert set(static["config"]) == {"java", "librdkafka", "aiokafka", "kohort"}
    assert static["config"]["java"][0].startswith("group.instance.id=<a stable name")
    assert static["config"]["kohort"][0].startswith('group_instance_id="<a stable name')
    assert told["unknown"]


def test_what_rests_on_a_session_that_the_history_does_not_have_is_not_ranked(
    advise: Advise, history: Path
) -> None:
    told = advise("billing", "--from", history).out.splitlines()

    assert not any(line[2:].startswith("static membership") for line in told)
    assert "No recommendation: nothing that could be ranked would have been better" in told[0]
    (line,) = (one for one in told if one.endswith("session.timeout.ms is not in the history"))
    assert line.startswith("not ranked: ")


def test_what_a_broker_answered_may_be_a_line_of_the_file(advise: Advise, tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"group": "billing", "rebalances": deploys("billing")}))

    done = advise("billing", "--from", path)

    assert done.out.startswith("Group billing, 6 rebalances")


@pytest.mark.parametrize(
    ("group", "text", "code", "said"),
    [
        ("other", as_lines(deploys("billing")), 1, "it has billing"),
        ("billing", "", 1, "it has no groups"),
        ("billing", "{broken\n", 2, "h.jsonl, line 1: not a history record"),
        (
            "billing",
            as_lines([{"group": "billing", "kind": "rebalance", "sequence": 1}]),
            2,
            "not a history",
        ),
    ],
)
def test_what_is_no_history_of_the_group_is_told_in_a_sentence(
    advise: Advise, tmp_path: Path, group: str, text: str, code: int, said: str
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(text)

    done = advise(group, "--from", path)

    assert done.code == code
    assert said in done.err


def test_what_cannot_be_meant_is_told_before_anything_is_read(
    advise: Advise, tmp_path: Path
) -> None:
    missing = advise("g", "--from", tmp_path / "none.jsonl")
    assert (missing.code, "none.jsonl: No such file" in missing.err) == (2, True)
    unknown = advise("g", "--from", tmp_path / "none.jsonl", "--known", "session=6")
    assert (unknown.code, "'session=6': must be one of " in unknown.err) == (2, True)


def test_a_group_that_only_avoided_rebalances_has_nothing_to_be_advised(
    advise: Advise, tmp_path: Path
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(as_lines([{"group": "g", "kind": "avoided", "sequence": 1, "at_ms": 0}]))

    assert "has not rebalanced" in advise("g", "--from", path).out
    assert json.loads(advise("g", "--from", path, "--json").out)["recorded"] is None
