"""Checks a group's settings for common causes of rebalances and lag.

Has pure functions that derive findings from the facts of a group, the code that collects the facts,
and GET /api/checks, which lists all groups that have findings. The advisor replays histories under
other settings (`kohort.broker.console.advising`); these checks need only the current state.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.console.problems import NAMED_MAX, NO_MEMBERS, Finding, problems
from kohort.broker.console.recent import HOUR_MS, Problem, Recent, Recents
from kohort.broker.console.source import GroupsSource
from kohort.broker.console.survey import GROUPS_MAX
from kohort.broker.groups_seen import GroupSeen, Position, positions
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.runtime.slices import Slice
from kohort.formats.text import counted, duration, listed, shown
from kohort.groups.description import DescribedMember, GroupDescription
from kohort.groups.events import TriggerKind
from kohort.groups.history.shares import parse_share
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import CONSUMER, Now

Json: TypeAlias = dict[str, Any]

SESSION_SHORT_MS: Final = 10_000
"""The shortest session timeout without a warning: with a shorter one, a long pause of a garbage
collector or a machine ends the session."""
SESSION_LONG_MS: Final = 120_000
"""The longest session timeout without a finding: with a longer one, partitions of a member that
died wait for minutes; the default of Kafka's clients is 45 s."""

STILL_MS: Final = 300_000
"""A partition with unread records and no commit for this long is considered stuck."""

_COOPERATIVE: Final = "cooperative"
_FROM_RESTARTS: Final = frozenset({"member_left", "member_added", "session_expired"})


class GroupFacts(NamedTuple):
    group: GroupDescription
    members: Sequence[DescribedMember]
    now_ms: int
    """The wall time of these facts."""
    causes: Sequence[str] = ()
    """Kinds of causes of the last hour's rebalances."""
    behind: Sequence[Position] = ()
    """Partitions with unread records."""
    problems: Sequence[Problem] = ()
    """Problems of the last hour, newest first."""


def findings(facts: GroupFacts) -> list[Finding]:
    all_findings = [
        *_problems(facts),
        *_assignors(facts),
        *_sessions(facts),
        *_static_ids(facts),
        *_idle(facts),
        *_still(facts),
    ]
    return sorted(all_findings, key=lambda finding: not finding.is_warning)


_ADVICE: Final = {
    TriggerKind.INSTANCE_FENCED.value: (
        "Usually two replicas have the same configuration: derive the id from the pod or the host."
    ),
    TriggerKind.PROTOCOL_REFUSED.value: (
        "To change the assignor of a group, restart its members twice: first with both assignors, "
        "then without the former one."
    ),
    TriggerKind.MEMBER_REFUSED.value: (
        "Most clients stop after this error: remove the cause, then start the process again."
    ),
}


def _problems(facts: GroupFacts) -> Iterator[Finding]:
    newest = {(problem.kind, problem.text): problem for problem in reversed(facts.problems)}
    for kind, text in newest:
        yield Finding(
            kind.replace("_", "-"),
            is_warning=True,
            text=f"{text[:1].upper()}{text[1:]}.",
            advice=_ADVICE[kind],
        )


def _assignors(facts: GroupFacts) -> Iterator[Finding]:
    offers = Counter(member.assignors for member in facts.members)
    if len(offers) < 2:
        return
    (usual, _), *_ = offers.most_common()
    others = tuple(member.member_id for member in facts.members if member.assignors != usual)
    names = "; ".join(listed(list(names), most=4) for names, _ in offers.most_common(NAMED_MAX))
    kinds = {any(_COOPERATIVE in name for name in names) for names in offers}
    if len(kinds) > 1:
        advice = (
            "Finish the roll-out: a group is cooperative only if all of its members support "
            "nothing else; until then all members stop in each rebalance."
        )
    else:
        advice = (
            "Configure the same list in the same order for all members "
            "(partition.assignment.strategy)."
        )
    yield Finding(
        "assignors",
        is_warning=True,
        text=f"Members support different assignors: {names}.",
        advice=advice,
        member_ids=others[:NAMED_MAX],
    )


def _sessions(facts: GroupFacts) -> Iterator[Finding]:
    by_timeout: dict[int, list[str]] = {}
    for member in facts.members:
        by_timeout.setdefault(member.session_timeout_ms, []).append(member.member_id)
    if len(by_timeout) > 1:
        timeouts = ", ".join(
            f"{duration(ms)} ({counted(len(ids), 'member')})"
            for ms, ids in sorted(by_timeout.items())[:NAMED_MAX]
        )
        rare = min(by_timeout.values(), key=len)
        yield Finding(
            "session-timeouts",
            is_warning=False,
            text=f"Members have different session timeouts: {timeouts}.",
            advice="One is probably left over from an older configuration (session.timeout.ms).",
            member_ids=tuple(rare[:NAMED_MAX]),
        )
    for ms, ids in sorted(by_timeout.items()):
        if ms < SESSION_SHORT_MS:
            yield Finding(
                "short-session",
                is_warning=True,
                text=f"{counted(len(ids), 'member')} would be removed after {duration(ms)} without "
                "a heartbeat.",
                advice="A long pause of the process or its machine then causes a rebalance. 45 s "
                "is the default of Kafka's clients (session.timeout.ms).",
                member_ids=tuple(ids[:NAMED_MAX]),
            )
        elif ms > SESSION_LONG_MS:
            yield Finding(
                "long-session",
                is_warning=False,
                text=f"A crash of one of {counted(len(ids), 'member')} is detected only after "
                f"{duration(ms)}.",
                advice="Its partitions are not read until then. This may be intended, if members "
                "are static and restarts are slow (session.timeout.ms).",
                member_ids=tuple(ids[:NAMED_MAX]),
            )


def _static_ids(facts: GroupFacts) -> Iterator[Finding]:
    without = [member.member_id for member in facts.members if member.instance_id is None]
    if not without or facts.group.kind is GroupKind.SHARE:
        return
    if len(without) < len(facts.members):
        yield Finding(
            "static-ids",
            is_warning=True,
            text=f"{counted(len(without), 'member')} of {len(facts.members)} without a static id.",
            advice="Only members with a static id restart without a rebalance; configure one for "
            "the others, too (group.instance.id).",
            member_ids=tuple(without[:NAMED_MAX]),
        )
        return
    restarts = sum(cause in _FROM_RESTARTS for cause in facts.causes)
    if restarts >= 2:
        yield Finding(
            "static-ids",
            is_warning=False,
            text=f"{counted(restarts, 'rebalance')} in the last hour because members joined, left "
            "or timed out, and none has a static id.",
            advice="A member with a static id (group.instance.id) that restarts within its "
            "session timeout causes no rebalance.",
        )


def _idle(facts: GroupFacts) -> Iterator[Finding]:
    if not facts.group.is_stable or facts.group.protocol_type != CONSUMER:
        return
    idle = [member.member_id for member in facts.members if has_any(member.assignment) is False]
    if idle:
        yield Finding(
            "idle-members",
            is_warning=False,
            text=f"{counted(len(idle), 'member')} of {len(facts.members)} without a partition.",
            advice="The group has more members than partitions, or the assignor omits some "
            "members. They are spare members, and take part in each rebalance.",
            member_ids=tuple(idle[:NAMED_MAX]),
        )


def _still(facts: GroupFacts) -> Iterator[Finding]:
    until_ms = facts.now_ms - STILL_MS
    still = [each for each in facts.behind if each.committed.commit_timestamp_ms <= until_ms]
    if not still:
        return
    worst = max(still, key=lambda position: position.lag or 0)
    since_ms = facts.now_ms - worst.committed.commit_timestamp_ms
    empty = "" if facts.members else " The group has no members."
    yield Finding(
        "stands-still",
        is_warning=True,
        text=f"{counted(len(still), 'partition')} with unread records and without a commit for "
        f"{duration(STILL_MS)} or longer; {shown(worst.topic)}-{worst.partition} is "
        f"{counted(worst.lag or 0, 'record')} behind, and its last commit was "
        f"{duration(since_ms)} ago.{empty}",
        advice="Check the member that owns it. Common causes are a record that cannot be "
        "processed, and a consumer that does not commit."
        if facts.members
        else NO_MEMBERS,
    )


MEMBERS_LOOKED_AT: Final = 1_000
"""Maximum number of members checked per group, the oldest first."""

_TOPICS: Final = struct.Struct(">hih")
"""The first fields of an assignment: its version, the number of topics, the length of the first
name."""
_PARTITIONS: Final = struct.Struct(">i")


def all_findings(
    group: GroupSeen, source: GroupsSource, behind: Iterable[Position], recent: Recent, now: Now
) -> list[Finding]:
    """Return the group's problems, then its other findings, warnings first. At most
    `MEMBERS_LOOKED_AT` members are checked.
    """
    found = [*problems(group, source, now)]
    is_held = any(finding.check == "held-back" for finding in found)
    since_ms = now.wall_ms - HOUR_MS
    facts = GroupFacts(
        group.describe(),
        group.describe_members(MEMBERS_LOOKED_AT),
        now.wall_ms,
        [rebalance.cause for rebalance in recent.rebalances if rebalance.at_ms >= since_ms],
        [position for position in behind if position.lag],
        [problem for problem in recent.problems if problem.at_ms >= since_ms],
    )
    return found + [
        finding for finding in findings(facts) if not (is_held and finding.check == "stands-still")
    ]


def has_any(assignment: bytes) -> bool | None:
    """Return whether a consumer's assignment has a partition, None if it cannot be parsed. Usually
    reads only the first topic, because this is called for all members of all groups.
    """
    if len(assignment) >= _TOPICS.size:
        _, topics, name_bytes = _TOPICS.unpack_from(assignment)
        at = _TOPICS.size + name_bytes
        if topics > 0 and name_bytes >= 0 and at + _PARTITIONS.size < len(assignment):
            (partitions,) = _PARTITIONS.unpack_from(assignment, at)
            if partitions > 0:
                return True
    share = parse_share(assignment)
    return None if share is None else bool(share)


CHECKED_LISTED_MAX: Final = 200
"""Maximum number of groups in a response: first those with urgent findings, then with warnings."""

URGENT: Final = frozenset({"hangs", "held-back", "falls-behind", "stands-still"})
"""Findings about the current state of a group, not about settings."""


class Checker:
    def __init__(self, source: GroupsSource, recents: Recents) -> None:
        self._source = source
        self._recents = recents

    async def wait_checks(self) -> Json:
        """Return the current findings; runs in time slices."""
        source = self._source
        time_slice = Slice(source.clock, SLICE_MS)
        urgent: list[Json] = []
        warned: list[Json] = []
        noted: list[Json] = []
        counts: Counter[str] = Counter()
        checked = warning_count = 0
        ids = source.groups.group_ids()
        for group_id in ids[:GROUPS_MAX]:
            group = source.groups.living_group(group_id)
            if group is None:
                continue
            checked += 1
            now = source.groups.now()
            behind = []
            for position in positions(group, source.readable):
                if position.lag:
                    behind.append(position)
                await time_slice.pause()
            recent = self._recents.recent(source.history, group_id, now.wall_ms)
            of_group = all_findings(group, source, behind, recent, now)
            if of_group:
                counts.update({finding.check for finding in of_group})
                item = {
                    "group": group_id,
                    "findings": [finding.as_json() for finding in of_group],
                }
                warning_count += of_group[0].is_warning
                listed = warned if of_group[0].is_warning else noted
                if any(finding.check in URGENT for finding in of_group):
                    listed = urgent
                if len(listed) < CHECKED_LISTED_MAX:
                    listed.append(item)
            await time_slice.pause()
        return {
            "at_ms": source.groups.now().wall_ms,
            "total": len(ids),
            "looked_at": checked,
            "counts": dict(counts),
            "warnings": warning_count,
            "groups": [*urgent, *warned, *noted][:CHECKED_LISTED_MAX],
        }
