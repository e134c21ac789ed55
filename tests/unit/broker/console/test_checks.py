"""What is worth a look in a group's settings."""

from typing import Any

import pytest

from kohort.broker.console.checks import (
    SESSION_LONG_MS,
    SESSION_SHORT_MS,
    STILL_MS,
    GroupFacts,
    findings,
    has_any,
)
from kohort.broker.console.problems import NO_MEMBERS, Finding
from kohort.broker.console.recent import Problem
from kohort.broker.groups_seen import Position, Readable
from kohort.groups.description import DescribedMember, GroupDescription
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import CommittedOffset
from tests.support.groups.raw_members import share

FINE = DescribedMember(
    "m-1", "static-1", "client", "/host", 45_000, 300_000, ("cooperative-sticky",), b"",
    share("t", 0),
)  # fmt: skip
NOW_MS = 10**12


def of(*members: DescribedMember, is_stable: bool = True, **facts: Any) -> list[Finding]:  # noqa: ANN401
    state = "Stable" if is_stable else "PreparingRebalance"
    group = GroupDescription("g", GroupKind.CLASSIC, state, "consumer", is_stable=is_stable)
    return findings(GroupFacts(group, members, NOW_MS, **facts))


def behind_by(lag: int, since_commit_ms: int, partition: int = 0) -> Position:
    committed = CommittedOffset(100, -1, "", NOW_MS - since_commit_ms)
    return Position("t", partition, committed, Readable(0, 100 + lag))


def names(found: list[Finding]) -> list[str]:
    return [one.check for one in found]


def test_a_group_with_nothing_to_find_has_no_findings() -> None:
    assert of(FINE, FINE._replace(member_id="m-2", instance_id="static-2")) == []
    assert of() == []


def test_members_with_different_assignors_are_named() -> None:
    other = FINE._replace(member_id="m-3", assignors=("range", "cooperative-sticky"))
    (found,) = of(FINE, FINE, other)
    assert found.is_warning
    assert found.member_ids == ("m-3",)
    assert "cooperative-sticky; range, cooperative-sticky" in found.text
    assert "same list" in found.advice


def test_a_group_between_eager_and_cooperative_is_told_to_finish() -> None:
    (found,) = of(FINE, FINE._replace(member_id="m-2", assignors=("range",)))
    assert found.advice.startswith("Finish the roll-out")


def test_different_session_timeouts_are_told_with_those_that_differ() -> None:
    (found,) = of(FINE, FINE, FINE._replace(member_id="m-9", session_timeout_ms=30_000))
    assert not found.is_warning
    assert "30 s (1 member), 45 s (2 members)" in found.text
    assert found.member_ids == ("m-9",)


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [
        (SESSION_SHORT_MS - 1, ["short-session"]),
        (SESSION_SHORT_MS, []),
        (SESSION_LONG_MS, []),
        (SESSION_LONG_MS + 1, ["long-session"]),
    ],
)
def test_session_timeouts_that_are_too_short_or_long_are_found(
    timeout_ms: int, expected: list[str]
) -> None:
    assert names(of(FINE._replace(session_timeout_ms=timeout_ms))) == expected


def test_some_members_without_a_static_id_are_a_warning() -> None:
    (found,) = of(FINE, FINE._replace(member_id="m-2", instance_id=None))
    assert found.is_warning
    assert found.member_ids == ("m-2",)


def test_no_static_ids_at_all_are_told_only_if_restarts_cost_rebalances() -> None:
    member = FINE._replace(instance_id=None)
    assert of(member, causes=("member_added",)) == []
    assert of(member, causes=("leader_rejoined",) * 9) == []
    (found,) = of(member, causes=("member_left", "member_added"))
    assert not found.is_warning
    assert found.text.startswith("2 rebalances in the last hour")


def test_members_without_partitions_are_told_once_the_group_is_stable() -> None:
    idle = FINE._replace(member_id="m-2", assignment=share("t"))
    assert names(of(FINE, idle)) == ["idle-members"]
    assert of(FINE, idle, is_stable=False) == []
    assert of(FINE, idle._replace(assignment=b"\0\0\xff")) == []


def test_unread_records_without_a_commit_are_a_warning_and_come_first() -> None:
    behind = (behind_by(5, STILL_MS), behind_by(1_500, STILL_MS + 60_000, 1))
    found = of(FINE, FINE._replace(assignment=share("t")), behind=behind)
    assert names(found) == ["stands-still", "idle-members"]
    assert "2 partitions with unread records" in found[0].text
    assert "t-1 is 1,500 records behind, and its last commit was 6 min ago." in found[0].text
    assert of(FINE, behind=(behind_by(5, STILL_MS - 1),)) == []


def test_a_group_without_members_that_stands_still_says_that_it_has_none() -> None:
    (found,) = of(behind=(behind_by(1, STILL_MS),))
    assert "t-0 is 1 record behind" in found.text
    assert found.text.endswith("The group has no members.")
    assert found.advice == NO_MEMBERS


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (b"", False),
        (share("t", 3), True),
        (share("t"), False),
        (share("t" * 200), False),
        (b"\0\0\0\0\0\0\xff\xff\xff\xff", False),
        # Nothing of the first topic, and something of the second.
        (b"\0\0\0\0\0\2\0\1a\0\0\0\0\0\1b\0\0\0\1\0\0\0\7\xff\xff\xff\xff", True),
        (b"\0\0\0\0\0\1\x7f\xfft\0\0\0\1", None),
        (b"\0\0\xff", None),
    ],
)
def test_whether_an_assignment_has_a_partition_is_seen_without_reading_it(
    assignment: bytes, expected: bool | None
) -> None:
    assert has_any(assignment) is expected


def test_problems_of_the_last_hour_are_found_once() -> None:
    problem = Problem(1, "instance_fenced", "two processes use the static id of member m")
    (finding,) = of(FINE, problems=[problem, problem._replace(at_ms=2)])
    assert (finding.check, finding.is_warning) == ("instance-fenced", True)
    assert "two processes" in finding.text.lower()
