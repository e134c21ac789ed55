"""The commands that read a history, over one of `kohort watch`: nothing is more certain than it is
in the records.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from time import time

import pytest

from kohort.cli.groups.drawing import Symbols
from kohort.groups.history.evidence import record_evidence
from kohort.groups.history.sentence import record_sentence
from kohort.groups.history.wording import short_id
from tests.support.processes.commands import Said, said_here
from tests.unit.watch.recorded import Json, watch_lab

HISTORY = watch_lab(polls=True)

Ask = Callable[..., Said[str]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("watch") / "rebalances.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in HISTORY))
    return path


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], file: Path) -> Ask:
    """`kohort groups` with --from."""

    def run(command: str, *arguments: object) -> Said[str]:
        return said_here(capsys, "groups", command, *map(str, arguments), "--from", str(file))

    return run


def clock(at_ms: int) -> str:
    return f"at {at_ms}"


@pytest.mark.parametrize("record", HISTORY, ids=lambda one: f"{one['group']}-{one['sequence']}")
def test_every_cause_and_departure_says_how_certain_it_is(record: Json) -> None:
    certainty = record["trigger"]["certainty"]
    assert (f"({certainty}" in record_sentence(record, clock)) == (certainty != "certain")
    lines = record_evidence(record, clock)
    for member in record.get("members", ()):
        if member.get("certainty", "certain") != "certain":
            mark = f"{member['fate'].replace('_', ' ')} ({member['certainty']}): "
            assert any(
                line.startswith(mark) and short_id(member["member_id"]) in line for line in lines
            )


def test_a_wait_for_a_member_is_as_certain_as_what_became_of_it() -> None:
    waits = [record for record in HISTORY if record.get("waited_for")]
    record = next(record for record in waits if record["group"] == "ck-classic-two")
    ending = "which missed its session timeout of 10 s (likely)"
    assert record_sentence(record, clock).endswith(ending)


def test_if_the_beginning_is_a_guess_its_bounds_are_shown() -> None:
    record = next(record for record in HISTORY if record.get("started_between_ms"))
    earliest, latest = record["started_between_ms"]
    text = "\n".join(record_evidence(record, clock))
    assert f"between at {earliest} and at {latest}" in text
    assert "joins took" not in text


def test_why_and_timeline_read_a_file(ask: Ask) -> None:
    said = ask("why", "ck-classic-kill", "--last", 2).lines
    assert "session timeout of 10 s (likely: its last commit was 10" in said[0]
    assert "no longer exists" not in said[-1]
    assert (
        ask("why", "ck-classic-kill", "--json").json["rebalances"]
        == [record for record in HISTORY if record["group"] == "ck-classic-kill"][-1:]
    )
    drawn = ask("timeline", "ck-classic-kill", "--last", 2).lines
    expired = next(line for line in drawn if line.endswith("session expired (likely)"))
    assert "?" in expired
    assert "X" not in expired
    kept = drawn[drawn.index(expired) + 1]
    assert Symbols().joins in kept
    assert "did not join" not in kept


def test_list_shows_the_last_cause_of_each_group(ask: Ask) -> None:
    lines = ask("list").lines
    assert len(lines) == 1 + len({record["group"] for record in HISTORY})
    (row,) = [line for line in lines if line.startswith("java-classic-enf ")]
    assert row.split()[-2:] == ["member_left", "(likely)"]
    rows = ask("list", "--json").json["groups"]
    assert sum(row["rebalances"] for row in rows) == sum(
        record["kind"] == "rebalance" for record in HISTORY
    )


def test_list_shows_the_last_rebalance_and_counts_those_of_the_last_hour(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now_ms = int(time() * 1000)
    found = deepcopy([record for record in HISTORY if record["group"] == "ck-classic-roll"][:4])
    for record, age_s in zip(found, (7200, 600, 60, 6), strict=True):
        record["at_ms"] = now_ms - age_s * 1000
        record["started_at_ms"] = record["at_ms"] - 1000
    last, avoided = found[-2:]
    del last["started_at_ms"]
    last["members_after"] = 7
    avoided["kind"] = "avoided"
    path = tmp_path / "rebalances.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in found))
    list_files = ("groups", "list", "--from", str(path))
    (row,) = said_here(capsys, *list_files, "--json").json["groups"]
    assert row == {
        "group": "ck-classic-roll",
        "type": "classic",
        "members": 7,
        "rebalances": 3,
        "rebalances_in_last_hour": 2,
        "last_at_ms": last["at_ms"],
        "last_trigger": last["trigger"],
    }
    line = said_here(capsys, *list_files).lines[1].split()
    assert line[:5] == ["ck-classic-roll", "classic", "7", "3", "2"]
    assert ":" in line[5]


def test_records_of_two_watchers_count_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: Path
) -> None:
    """The other one began later, and so counts from another number."""
    other = tmp_path / "other.jsonl"
    later = [record | {"sequence": record["sequence"] + 2} for record in HISTORY]
    other.write_text("".join(f"{json.dumps(record)}\n" for record in later))
    said = said_here(capsys, "groups", "list", "--json", "--from", str(other), "--from", str(file))
    counts = [row["rebalances"] for row in said.json["groups"]]
    assert sum(counts) == sum(record["kind"] == "rebalance" for record in HISTORY)


def test_advice_comes_from_what_the_topic_shows(ask: Ask) -> None:
    """Rolling restarts, which static members are spared."""
    advice = ask("advise", "ck-classic-roll", "--json").json
    assert advice["recorded"]["rebalances"] == advice["history"]["rebalances"]
    assert advice["recorded"]["setting"]["session_timeout_ms"] == 10_000
    (best,) = [choice for choice in advice["choices"] if choice["is_best"]]
    assert best["setting"]["static"]


def test_advice_that_rests_on_unclear_departures_is_not_ranked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    records = [deepcopy(record) for record in HISTORY if record["group"] == "ck-classic-roll"]
    for record in records:
        for member in record["members"]:
            if member["fate"] == "left":
                member["certainty"] = "unclear"
                member["candidates"] = ["session_expired", "left"]
    path = tmp_path / "unclear.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    said = said_here(
        capsys, "groups", "advise", "ck-classic-roll", "--json", "--from", str(path)
    ).json
    settings = [choice["setting"] for choice in said["choices"]]
    recorded = said["recorded"]["setting"]
    for name in ("static", "session_timeout_ms", "consumer"):
        assert all(setting[name] == recorded[name] for setting in settings)
    assert any("unclear" in reason for reason in said["unranked"])
    assert any("unclear" in text for text in said["unknown"])


def test_the_report_counts_the_causes_that_are_not_certain(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert ask("report", "ck-classic-roll", "--output", path).code == 0
    causes = [record["trigger"] for record in HISTORY if record["group"] == "ck-classic-roll"]
    likely = sum(cause["certainty"] == "likely" for cause in causes)
    assert likely
    assert f"causes that are not certain: {likely} likely" in path.read_text()
