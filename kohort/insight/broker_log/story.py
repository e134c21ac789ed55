"""Assembles one group's log lines into records: one per rebalance, and one per avoided rebalance.

Fields that the log does not show stay empty: when members were notified, joined and synced, how
long they were stopped, and what they owned. Only members named in a line are listed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, assert_never

from kohort.insight.broker_log import reasons
from kohort.insight.broker_log.lines import (
    Assigned,
    Emptied,
    Fact,
    Failed,
    Joined,
    Left,
    Member,
    NotJoined,
    Preparing,
    Replaced,
    Stabilized,
)
from kohort.insight.broker_log.reasons import Cause
from kohort.insight.broker_log.record import Departure, Open, avoided, record

Json: TypeAlias = dict[str, Any]

MEMBERS_HELD: Final = 10_000
"""Maximum number of members kept if the log does not contain the size of the group."""

GONE_HELD: Final = 1_000
"""Maximum number of departed members whose rebalance the log has not shown yet."""


@dataclass(slots=True)
class GroupStory:
    """Converts the lines of one group, in order; yields each record when it is complete."""

    group: str
    sequence: int = 0
    generation: int = 0
    state: str = ""
    """The group's state: Empty, Stable or CompletingRebalance; "" until a line shows it."""
    members: dict[str, Member] = field(default_factory=dict)
    """Members named in a line; if their number is `size`, these are all members."""
    size: int | None = None
    """Size of the last generation, as logged."""
    leader: str | None = None
    _open: Open | None = None
    _closed: Open | None = None
    """The last record, kept until the next line is read: some versions of Kafka log a departure
    after the rebalance that it caused."""
    _gone: dict[str, Departure] = field(default_factory=dict)
    """Departed members, kept until the log shows the rebalance that they cause."""
    _replaced: tuple[Member, int] | None = None
    """A static member that returned, and when; the next line shows whether a rebalance was
    avoided."""
    _arrived: set[str] = field(default_factory=set)
    """New members that were logged before the start of the rebalance that they cause."""

    def add(self, fact: Fact, at_ms: int) -> Iterator[Json]:
        """Add a line; yield the records that it completes."""
        closed = self._closed
        if isinstance(fact, Left) and closed is not None and closed.name(fact.member, fact.text):
            return
        yield from self._flush()
        if not isinstance(fact, Preparing):
            yield from self._settle_replaced()
        match fact:
            case Preparing():
                yield from self._begin(fact, at_ms)
            case Stabilized():
                self._join_phase_over(fact, at_ms)
            case Assigned():
                self._assigned(fact, at_ms)
            case Emptied():
                self._emptied(fact, at_ms)
            case Joined():
                self._joined(fact, at_ms)
            case Left():
                self._left(fact.member, reasons.departure(fact.text), at_ms, fact.text)
            case Failed():
                self._left(fact.member, "session_expired", at_ms, None)
            case NotJoined():
                self._not_joined(fact, at_ms)
            case Replaced():
                self._came_back(fact.member, at_ms)
            case _:
                assert_never(fact)

    def end(self) -> Iterator[Json]:
        """Yield the records left at the end of the log; the last rebalance may still be running."""
        yield from self._flush()
        yield from self._settle_replaced()
        if self._open is not None:
            yield record(self._open)
            self._open = None

    # Handlers of single facts.

    def _begin(self, fact: Preparing, at_ms: int) -> Iterator[Json]:
        cause = reasons.parse_reason(fact.reason)
        if cause.kind == "static_replaced":
            self._rename(cause, at_ms)
        else:
            yield from self._settle_replaced()
        sequence = self._next_sequence(fact.generation)
        previous_state = self._previous_state(fact.generation)
        follows = None
        if self._open is not None:
            if self._open.supersede(sequence, fact.generation, at_ms):
                follows = self._open.sequence
            yield record(self._open)
        self._open = Open(
            group=self.group,
            sequence=sequence,
            previous_generation=fact.generation,
            previous_state=previous_state,
            follows=follows,
            started_at_ms=at_ms,
            cause=cause,
            members_before=self.size if fact.generation else 0,
            leader_before=self.leader,
            known_before={
                member_id: member
                for member_id, member in self.members.items()
                if member_id not in self._arrived
            },
        )
        self._add_departures(self._open)
        if cause.kind in {"member_added", "static_added"} and cause.member_id is not None:
            self._add(Member(cause.member_id, cause.instance_id))
        self._arrived.clear()
        self.generation = fact.generation

    def _add_departures(self, opened: Open) -> None:
        cause = opened.cause
        for member_id in cause.removed:
            if member_id not in self._gone:
                member = self._known(Member(member_id))
                self._gone[member_id] = Departure(
                    member, cause.kind, opened.started_at_ms, cause.text
                )
        for member_id, departure in self._gone.items():
            opened.gone[member_id] = departure
            self.members.pop(member_id, None)
        self._gone.clear()

    def _join_phase_over(self, fact: Stabilized, at_ms: int) -> None:
        self.generation, self.size = fact.generation, fact.members
        self.state = "CompletingRebalance"
        self._arrived.clear()
        if len(self.members) > (MEMBERS_HELD if fact.members is None else fact.members):
            # A member left without a line about it, so the names are unreliable.
            self.members.clear()
        if self._open is not None:
            self._open.generation = fact.generation
            self._open.join_phase_at_ms = at_ms
            self._open.members_after = fact.members
            self._open.members = dict(self.members)

    def _assigned(self, fact: Assigned, at_ms: int) -> None:
        self.generation, self.state = fact.generation, "Stable"
        opened = self._open
        if opened is not None and opened.generation == fact.generation:
            opened.leader = fact.leader
            opened.synced_at_ms = opened.finished_at_ms = at_ms
            opened.outcome = "stable"
            self._open, self._closed = None, opened
        self.leader = fact.leader

    def _emptied(self, fact: Emptied, at_ms: int) -> None:
        self.generation, self.size, self.state, self.leader = fact.generation, 0, "Empty", None
        self.members.clear()
        opened = self._open
        if opened is not None:
            opened.generation, opened.members_after, opened.members = fact.generation, 0, {}
            opened.join_phase_at_ms = opened.finished_at_ms = at_ms
            opened.outcome = "empty"
            self._open, self._closed = None, opened

    def _joined(self, fact: Joined, at_ms: int) -> None:
        member_id = fact.member.member_id
        is_new = member_id not in self.members
        self._add(fact.member)
        if self._open is None:
            self._arrived.add(member_id)
        elif is_new and self._open.cause.member_id != member_id:
            kind = "member_added" if fact.member.instance_id is None else "static_added"
            self._open.add_cause(kind, fact.member, at_ms)

    def _left(self, member: Member, kind: str, at_ms: int, text: str | None) -> None:
        departure = Departure(self._known(member), kind, at_ms, text)
        opened = self._open
        if opened is not None and opened.generation is None:
            if opened.is_cause(member.member_id):
                opened.name(member, text)
                return
            opened.gone[member.member_id] = departure
            opened.add_cause(kind, departure.member, at_ms, text)
            self.members.pop(member.member_id, None)
        elif len(self._gone) < GONE_HELD:
            self._gone[member.member_id] = departure

    def _not_joined(self, fact: NotJoined, at_ms: int) -> None:
        if self._open is None:
            return
        self._open.timed_out = True
        for member_id in fact.member_ids:
            member = self._known(Member(member_id))
            self._open.gone[member_id] = Departure(member, "rebalance_timeout", at_ms)
            self.members.pop(member_id, None)

    def _came_back(self, member: Member, at_ms: int) -> None:
        if self._open is not None:
            self._open.add_cause("static_replaced", member, at_ms)
            self.members.pop(member.member_id, None)
        else:
            self._replaced = (member, at_ms)

    # Shared helpers.

    def _flush(self) -> Iterator[Json]:
        if self._closed is not None:
            yield record(self._closed)
            self._closed = None

    def _settle_replaced(self) -> Iterator[Json]:
        """Yield an avoided rebalance for a static member that returned, because no rebalance
        followed. The new member id is unknown.
        """
        if self._replaced is None:
            return
        member, at_ms = self._replaced
        self._replaced = None
        self.members.pop(member.member_id, None)
        sequence = self._next_sequence(self.generation)
        yield avoided(self.group, sequence, self.generation, member, at_ms)

    def _rename(self, cause: Cause, at_ms: int) -> None:
        old = None if self._replaced is None else self._replaced[0]
        self._replaced = None
        if old is not None and cause.member_id is not None:
            self._gone[old.member_id] = Departure(
                self._known(old), "replaced", at_ms, replaced_by=cause.member_id
            )
        if cause.member_id is not None:
            self._add(Member(cause.member_id, cause.instance_id))

    def _next_sequence(self, generation: int) -> int:
        """Return the next sequence number; the first one is `generation` + 1."""
        self.sequence = (self.sequence or generation) + 1
        return self.sequence

    def _previous_state(self, generation: int) -> str:
        if self._open is not None and self._open.generation is None:
            return self._open.previous_state
        if not self.state:
            return "Empty" if generation == 0 else ""
        return self.state

    def _add(self, member: Member) -> None:
        if len(self.members) < MEMBERS_HELD:
            self.members[member.member_id] = self._known(member)

    def _known(self, member: Member) -> Member:
        """Return the member, with empty fields filled in from earlier lines."""
        known = self.members.get(member.member_id)
        if known is None:
            return member
        return Member._make(new or old for new, old in zip(member, known, strict=True))
