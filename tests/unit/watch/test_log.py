"""The log of a broker beside its records: exact causes, and nothing that it does not prove."""

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kohort.groups.events import MemberRef, Trigger, TriggerKind
from kohort.groups.records import GroupRecord
from kohort.insight.broker_log.lines import Line, read
from kohort.watch.core import logged as logged_facts
from kohort.watch.core.logged import NO_LINES, Logs, Times, begun_by
from kohort.watch.core.origin import Cause
from kohort.watch.log_files import LINE_MAX, LogFiles
from tests.unit.watch.recorded import LAB, poll_lab, watch_lab
from tests.unit.watch.test_lab import FORMS, score_causes, score_fates

AT_MS = 1_795_810_429_534
OLD = GroupRecord("g", "consumer", 4, "range", "a", -1, ())


def begins(generation: int, member_id: str, at_ms: int = AT_MS) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds").replace(".", ",")
    return (
        f"[{at[:23]}] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=3] Preparing "
        f"to rebalance group g in state PreparingRebalance with old generation {generation} "
        f"(reason: Adding new member {member_id} with group instance id null; client reason: not "
        "provided). (org.apache.kafka.coordinator.group.GroupMetadataManager)"
    )


def line(text: str) -> Line:
    parsed = read(text, UTC)
    assert parsed is not None
    return parsed


def logged(*texts: str) -> Logs:
    logs = Logs()
    for text in texts:
        logs.add(line(text))
    return logs


def who_began(logs: Logs, after_ms: int, before_ms: int) -> str | None:
    new = OLD._replace(generation=5)
    cause = logs.of("g").origin(OLD, new, 4, Times(after_ms, before_ms))
    if cause is None or cause.trigger.member is None:
        return None
    return cause.trigger.member.member_id


# The recorded lab.


@pytest.mark.parametrize("form", FORMS)
def test_what_was_unclear_is_certain_and_right(form: str) -> None:
    before, after = watch_lab(**FORMS[form]), watch_lab(**FORMS[form], log=True)
    for score in (score_fates, score_causes):
        scored = score(after)
        assert not scored["certain", False] + scored["likely", False]
        assert not scored["unclear", True] + scored["unclear", False]
        assert scored["likely", True] <= 1
        assert scored["certain", True] > score(before)["certain", True]


def test_a_poll_timeout_that_the_client_did_not_state_is_still_seen() -> None:
    """librdkafka leaves without a reason; that it was late with its poll shows in its commits."""
    (late,) = [
        record["trigger"]
        for record in watch_lab(polls=True, log=True)
        if record["group"] == "ck-classic-poll" and record["trigger"]["detail"]
    ]
    assert (late["kind"], late["detail"]) == ("member_left", "poll timeout")
    assert late["certainty"] == "likely"
    assert "log_line" in [fact["kind"] for fact in late["evidence"]]


def test_the_reason_that_a_client_stated_is_shown() -> None:
    texts = Counter(record["trigger"]["reason_text"] for record in watch_lab(log=True))
    assert texts["the consumer is being closed"] >= 5
    assert any("poll timeout" in (text or "") for text in texts)


def test_a_log_in_another_time_zone_changes_nothing() -> None:
    elsewhere = timezone(timedelta(hours=1))
    assert watch_lab(log=True, zone=elsewhere) == watch_lab()


def test_with_polls_alone_the_log_says_how_members_went() -> None:
    fates: Counter[str] = Counter()
    for record in poll_lab(log=True):
        assert record["trigger"]["certainty"] != "certain"
        for member in record.get("members", ()):
            if member["fate"] not in {"kept", "new", "replaced"}:
                fates[member.get("certainty", "certain")] += 1
    assert fates["certain"] >= 80
    assert fates["unclear"] <= 20


# Lines of something else.


def test_only_a_line_between_two_records_is_about_the_later_one() -> None:
    logs = logged(begins(4, "a-1"))
    assert who_began(logs, AT_MS - 5_000, AT_MS + 5_000) == "a-1"
    assert who_began(logs, AT_MS + 5_000, AT_MS + 9_000) is None
    assert who_began(logs, AT_MS - 9_000, AT_MS - 5_000) is None
    assert who_began(logged(begins(3, "a-1")), AT_MS - 5_000, AT_MS + 5_000) is None


def test_brokers_that_say_different_things_are_not_believed() -> None:
    same = logged(begins(4, "a-1"), begins(4, "a-1"), begins(4, "a-1", AT_MS + 500))
    assert who_began(same, AT_MS, AT_MS) == "a-1"
    assert who_began(logged(begins(4, "a-1"), begins(4, "b-2")), AT_MS, AT_MS) is None
    apart = logged(begins(4, "a-1", AT_MS - 60_000), begins(4, "b-2"))
    assert who_began(apart, AT_MS, AT_MS) == "b-2"


def test_a_cause_without_a_member_is_not_that_of_a_line_that_names_one() -> None:
    def cause(kind: TriggerKind, member: MemberRef | None) -> Cause:
        return Cause(Trigger(kind, member), AT_MS, is_known=True)

    left = cause(TriggerKind.MEMBER_LEFT, MemberRef("a-1", None, "a", "/h"))
    changed = cause(TriggerKind.STORE_FAILED, None)
    assert begun_by(left, [changed]) == (left, changed)
    assert begun_by(changed, [left]) == (changed, left)
    assert begun_by(changed, [changed]) == (changed,)


def test_the_oldest_lines_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_facts, "LINES_KEPT", 2_000)
    logs = Logs()
    first = line(begins(4, "a-1"))
    for number in range(2_001):
        fact: Any = first.fact
        logs.add(Line(AT_MS, type(fact)(f"g{number % 7}", number, fact.reason)))
    assert logs.of("g0") is not NO_LINES
    assert logs.of("g0").origin(OLD, OLD, 0, Times(0, AT_MS)) is None
    assert logs.of("g1").origin(OLD, OLD, 1, Times(0, AT_MS)) is not None
    assert logs.of("never") is NO_LINES


# Files.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(begins(4, "a-1") + "\n")
    return path


def wrote(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_is_followed_through_rotation_and_truncation(path: Path) -> None:
    with LogFiles([str(path)], UTC) as files:

        def now(read: Callable[[Logs], None] = files.read_new) -> str | None:
            logs = Logs()
            read(logs)
            return who_began(logs, AT_MS, AT_MS)

        assert now() == "a-1"
        wrote(path, begins(4, "b-2")[:90])
        assert now() is None
        wrote(path, begins(4, "b-2")[90:] + "\n")
        assert now() == "b-2"
        path.rename(path.with_suffix(".1"))
        assert now() is None
        wrote(path.with_suffix(".1"), begins(4, "c-3") + "\n")
        assert now() == "c-3"
        path.write_text(begins(4, "d-4") + "\n")
        assert now() == "d-4"
        os.truncate(path, 0)
        assert now() is None
        wrote(path, begins(4, "e") + "\n")
        assert now() == "e"


def test_a_pipe_is_read_as_far_as_it_was_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pipe.open("r+b", buffering=0) as writer, LogFiles([str(pipe)], UTC) as files:
        writer.write(begins(4, "a-1").encode() + b"\n")
        logs = Logs()
        files.read_past(logs, to_end=False)
        assert who_began(logs, AT_MS, AT_MS) == "a-1"
        writer.write(begins(4, "b-2").encode() + b"\n")
        later = Logs()
        files.read_new(later)
        assert who_began(later, AT_MS, AT_MS) == "b-2"


def test_a_compressed_log_is_read_once() -> None:
    with LogFiles([str(LAB / "kafka.log.gz")], UTC) as files:
        logs = Logs()
        files.read_past(logs, to_end=True)
        files.read_new(logs)
    assert logs.of("ck-classic-kill") is not NO_LINES


def test_a_line_without_end_is_skipped(path: Path) -> None:
    path.write_bytes(b"x" * (2 * LINE_MAX) + b"\n" + begins(4, "a-1").encode() + b"\n")
    with LogFiles([str(path)], UTC) as files:
        logs = Logs()
        files.read_past(logs, to_end=False)
    assert who_began(logs, AT_MS, AT_MS) == "a-1"
