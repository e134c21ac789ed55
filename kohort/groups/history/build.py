"""Builds the record of a rebalance from its facts.

For thousands of members this takes tens of milliseconds, so it works in steps: a generator that
yields whenever other work should run, and returns the record at its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kohort.groups.events import MemberRef
from kohort.groups.history import consumer_waits
from kohort.groups.history.awaited_members import leader_change, waited_for
from kohort.groups.history.consumers import CONSUMER_MODE
from kohort.groups.history.facts import AvoidedFacts, Cause, RebalanceFacts
from kohort.groups.history.listed_members import Row, select_rows
from kohort.groups.history.model import (
    AvoidedRecord,
    MemberFate,
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
    Stopped,
    Timeline,
    Unread,
    WaitedFor,
)
from kohort.groups.history.moves import NONE_TAKEN, Moves, TakenPartitions
from kohort.groups.history.names import COOPERATIVE, MEMBERS_LISTED, cut_id
from kohort.groups.history.shares import NOTHING, owns_partitions, parse_share
from kohort.groups.history.triggers import cut_or_none, stated_fields, trigger_record
from kohort.groups.history.unread import unread_steps
from kohort.groups.kinds import EMPTY
from kohort.groups.requests import CONSUMER
from kohort.groups.steps import FEW, SOME, Steps

Built: TypeAlias = tuple[RebalanceRecord, TakenPartitions]
"""The record, and the revoked partitions that have no new owner after the rebalance."""


def build_avoided(group_id: str, facts: AvoidedFacts) -> AvoidedRecord:
    return AvoidedRecord(
        group=group_id,
        sequence=facts.sequence,
        generation=facts.generation,
        at_ms=facts.cause.at.wall_ms,
        trigger=trigger_record(facts.cause),
    )


def build_steps(
    group_id: str,
    facts: RebalanceFacts,
    *,
    until_ms: int,
    taken: TakenPartitions = NONE_TAKEN,
    members_listed: int = MEMBERS_LISTED,
) -> Steps[Built]:
    """Build the record as of `until_ms` (monotonic); `taken`: revoked, still unowned partitions."""
    builder = _Builder(group_id, facts, until_ms, members_listed, taken)
    yield from builder.steps()
    built = builder.record(), builder.taken_after
    yield
    yield from builder.let_go()
    return built


def let_go(remains: list[Any]) -> Steps[None]:
    """Empty `remains` in steps: freeing thousands of objects takes milliseconds too."""
    while remains:
        del remains[-FEW:]
        yield


@dataclass(slots=True, eq=False)
class _Builder:
    group_id: str
    facts: RebalanceFacts
    until_ms: int
    members_listed: int
    taken_before: TakenPartitions
    taken_after: TakenPartitions = field(default_factory=dict)
    _rows: list[Row] = field(default_factory=list)
    _moves: Moves = field(default_factory=lambda: Moves(NONE_TAKEN, is_known=False))
    _taken_at: dict[str, int] = field(default_factory=dict)
    _stopped_count: int = 0
    _stopped_longest_ms: int = 0
    _stopped_total_ms: int = 0
    _open_count: int = 0
    _listed: list[MemberTimeline] = field(default_factory=list)
    _is_cooperative: bool = False
    """Whether any member's subscription lists owned partitions."""
    _members_before: int = 0
    _members_after: int = 0
    _follows: int | None = None
    _waited_for: WaitedFor = field(default=WaitedFor())
    _unread: Unread = field(default=Unread())

    def steps(self) -> Iterator[None]:
        yield from self._find_rows()
        yield from self._compare_shares()
        yield from self._measure_stops()
        yield from self._find_link()
        self._unread = yield from self._find_unread()
        yield from self._list_members()
        yield
        self._waited_for = self._find_wait()
        yield

    def _find_unread(self) -> Steps[Unread]:
        end_ms = self.until_ms if self.facts.finished_ms is None else self.facts.finished_ms
        return unread_steps(self.facts, self._moves, self._taken_at, end_ms)

    def _find_wait(self) -> WaitedFor:
        facts = self.facts
        if facts.consumers is None:
            return waited_for(facts, self.until_ms)
        end_ms = self.until_ms if facts.finished_ms is None else facts.finished_ms
        return consumer_waits.waited_for(
            facts.consumers,
            (row.member.member_id for row in self._rows if row.gone is None),
            facts.started.classic_ids,
            facts.began.ms,
            end_ms,
            is_over=facts.outcome in {RebalanceOutcome.STABLE, RebalanceOutcome.EMPTY},
        )

    def let_go(self) -> Iterator[None]:
        """Release large data, in steps; called when the record is complete."""
        remains: list[Any] = [*self._rows, *self._moves.by_member.values()]
        self._rows, self._moves = [], Moves(NONE_TAKEN, is_known=False)
        yield from let_go(remains)

    # Participants.

    def _find_rows(self) -> Steps[None]:
        facts = self.facts
        before = yield from self._find_those_before()
        if facts.outcome is RebalanceOutcome.EMPTY:
            members: tuple[MemberRef, ...] = ()
        elif facts.join_phase is not None:
            members = facts.join_phase.members
        elif facts.consumers is not None:
            members = consumer_waits.members(facts, facts.consumers)
        else:
            members = yield from self._find_those_to_come()
        protocol = None if facts.join_phase is None else facts.join_phase.protocol_name
        for count, member in enumerate(members, start=1):
            row = Row(member, facts.gone.get(member.member_id), member.member_id not in before)
            if row.gone is None:
                self._members_after += 1
            row.owns = self._owns(member.member_id, protocol)
            self._is_cooperative |= row.owns
            self._rows.append(row)
            if count % SOME == 0:
                yield
        listed = dict.fromkeys(member.member_id for member in members)
        for count, gone in enumerate(facts.gone.values(), start=1):
            if gone.member.member_id not in listed:
                self._rows.append(Row(gone.member, gone, is_new=False, is_of_phase=False))
            if count % FEW == 0:
                yield

    def _find_those_before(self) -> Steps[dict[str, None]]:
        """Return the ids of all members before the rebalance, and of their replacements.

        The result is a dict because the garbage collector does not traverse a dict of texts, but
        does traverse a set.
        """
        facts = self.facts
        started = facts.started
        before: dict[str, None] = {}
        for count, member in enumerate(started.members, start=1):
            before[member.member_id] = None
            if count % FEW == 0:
                yield
        # Members whose removal caused the rebalance are previous members, too.
        removed = {one for one in started.trigger.removed if one not in before}
        self._members_before = len(before) + len(removed)
        yield
        for count, gone in enumerate(facts.gone.values(), start=1):
            if gone.replaced_by:
                before[gone.replaced_by] = None
            if count % FEW == 0:
                yield
        return before

    def _find_those_to_come(self) -> Steps[tuple[MemberRef, ...]]:
        """Return the members that have joined, then the others that were members at the start."""
        found: dict[str, MemberRef] = {}
        for count, (_, join) in enumerate(self.facts.joins.values(), start=1):
            found[join.member.member_id] = join.member
            if count % FEW == 0:
                yield
        for count, member in enumerate(self.facts.started.members, start=1):
            found[member.member_id] = member
            if count % FEW == 0:
                yield
        return tuple(found.values())

    def _owns(self, member_id: str, protocol: str | None) -> bool:
        join = self.facts.joins.get(member_id)
        is_consumer_group = self.facts.consumers is not None
        if join is None or is_consumer_group or self.facts.protocol_type != CONSUMER:
            return False
        # Before a protocol is chosen, any protocol's metadata may list owned partitions, which only
        # cooperative members have when they join.
        return any(
            (protocol is None or name == protocol) and owns_partitions(data)
            for name, data in join[1].protocols
        )

    # Assignments.

    def _compare_shares(self) -> Iterator[None]:
        facts = self.facts
        before, after = facts.holdings, facts.after
        is_consumer = facts.protocol_type in {CONSUMER, None}
        if before is None or after is None or not is_consumer:
            return
        self._moves = Moves(self.taken_before, is_known=True)
        for count, row in enumerate(self._rows, start=1):
            member_id = row.member.member_id
            if row.gone is None:
                self._moves.add(member_id, before.of(member_id), after.of(member_id))
            elif row.gone.replaced_by is None:
                # Replaced members do not count: their partitions stay with the replacement.
                self._moves.add(member_id, before.of(member_id), b"")
            if count % SOME == 0:
                yield

    # Interruptions.

    def _measure_stops(self) -> Steps[None]:
        is_cooperative = self._is_cooperative
        for count, row in enumerate(self._rows, start=1):
            answered_ms = self._answered_ms(row.member.member_id)
            if row.gone is not None:
                self._taken_at[row.member.member_id] = row.gone.at_ms
            elif answered_ms is not None:
                self._taken_at[row.member.member_id] = answered_ms
            if count % FEW == 0:
                yield
        for count, row in enumerate(self._rows, start=1):
            self._measure(row, is_cooperative=is_cooperative)
            self._moves.count_moved(row.member.member_id)
            if count % SOME == 0:
                yield
        if self.facts.after is None:
            self.taken_after = self.taken_before
        elif is_cooperative:
            sequence = self.facts.sequence
            self.taken_after = yield from self._moves.still_taken(self._taken_at, sequence)

    def _find_link(self) -> Iterator[None]:
        """Set `_follows` to the rebalance that this one superseded, otherwise to the latest
        rebalance whose revoked partitions this one assigns.
        """
        self._follows = self.facts.follows
        if self._follows is not None or not self._moves.is_known:
            return
        for count, (partition, taken) in enumerate(self.taken_before.items(), start=1):
            if partition in self._moves.gained_by:
                self._follows = max(self._follows or taken.sequence, taken.sequence)
            if count % FEW == 0:
                yield

    def _measure(self, row: Row, *, is_cooperative: bool) -> None:
        member_id = row.member.member_id
        consumers = self.facts.consumers
        if consumers is not None:
            row.mode = CONSUMER_MODE
            progress = consumers.members.get(member_id)
            row.stopped_ms, row.stopped_open = consumer_waits.stop(self.facts, consumers, progress)
            self._count_stop(row)
            return
        join = self.facts.joins.get(member_id)
        if join is None:
            return
        answered_ms = self._answered_ms(member_id)
        if row.owns or (is_cooperative and not row.is_new and self._held_nothing(member_id)):
            row.mode = COOPERATIVE
            move = self._moves.of(member_id)
            row.stopped_ms = 0
            row.stopped_open = answered_ms is None or not (
                move.given_up <= self._moves.gained_by.keys()
            )
            if answered_ms is not None:
                row.stopped_ms = self._moves.longest_stop_ms(
                    move.gained, answered_ms, self._taken_at
                )
        else:
            row.mode = "eager"
            end_ms = answered_ms
            if end_ms is None:
                end_ms = self._end_ms if row.gone is None else row.gone.at_ms
            row.stopped_ms = max(end_ms - join[0], 0)
            row.stopped_open = answered_ms is None
        self._count_stop(row, is_counted=not row.is_new)

    def _count_stop(self, row: Row, *, is_counted: bool = True) -> None:
        self._open_count += row.stopped_open
        if is_counted and row.stopped_ms:
            self._stopped_count += 1
            self._stopped_total_ms += row.stopped_ms
            self._stopped_longest_ms = max(self._stopped_longest_ms, row.stopped_ms)

    def _held_nothing(self, member_id: str) -> bool:
        """Whether the member is known to have owned no partitions before the rebalance."""
        holdings = self.facts.holdings
        return holdings is not None and parse_share(holdings.of(member_id)) == NOTHING

    @property
    def _end_ms(self) -> int:
        """When the rebalance ended for members that got no assignment in it."""
        facts = self.facts
        if facts.finished_ms is None or facts.outcome is RebalanceOutcome.STABLE:
            return self.until_ms
        return facts.finished_ms

    def _answered_ms(self, member_id: str) -> int | None:
        facts = self.facts
        synced_ms = facts.syncs.get(member_id)
        finished_ms = facts.finished_ms
        if synced_ms is None or finished_ms is None:
            return None
        # A sync that was received before the group became Stable was answered at that moment.
        return max(synced_ms, finished_ms) if facts.outcome is RebalanceOutcome.STABLE else None

    # Listed members.

    def _list_members(self) -> Steps[None]:
        rows = self._rows
        if len(rows) > self.members_listed:
            rows = yield from select_rows(rows, self.facts, self.members_listed)
        for count, row in enumerate(rows, start=1):
            self._listed.append(self._timeline_of(row))
            if count % SOME == 0:
                yield

    def _timeline_of(self, row: Row) -> MemberTimeline:
        facts = self.facts
        member_id = row.member.member_id
        join = facts.joins.get(member_id)
        gone = row.gone
        fate = MemberFate.NEW if row.is_new else MemberFate.KEPT
        stated = {} if join is None else stated_fields(join[1].reason)
        if gone is not None:
            fate = gone.fate
            if gone.text:
                stated["reason_text"] = cut_id(gone.text)
        joined_ms = None if join is None else join[0]
        told_ms = facts.told.get(member_id)
        answered_ms = self._answered_ms(member_id)
        partitions = self._moves.listed(member_id)
        if facts.consumers is not None:
            progress = facts.consumers.members.get(member_id)
            told_ms = None if progress is None else progress.told_ms
            partitions = consumer_waits.partitions(progress)
            stated |= consumer_waits.member_fields(facts, member_id, progress)
        software_name, _, software_version = row.member.client_software.partition(" ")
        is_answered = join is not None and facts.join_phase is not None and self._is_in(row)
        return MemberTimeline(
            member_id=cut_id(member_id),
            instance_id=cut_or_none(row.member.instance_id),
            client_id=cut_id(row.member.client_id),
            host=cut_id(row.member.client_host),
            client_software_name=software_name or None,
            client_software_version=software_version or None,
            role=self._role_of(row),
            told_ms=self._after(told_ms),
            join_received_ms=self._after(joined_ms),
            join_answered_ms=self._after(facts.join_phase_ms) if is_answered else None,
            sync_received_ms=self._after(facts.syncs.get(member_id)),
            sync_answered_ms=self._after(answered_ms),
            fate=fate,
            fate_ms=None if gone is None else self._after(gone.at_ms),
            replaced_by=None if gone is None else cut_or_none(gone.replaced_by),
            mode=row.mode,
            stopped_ms=row.stopped_ms,
            stopped_open=row.stopped_open,
            session_timeout_ms=None if join is None else join[1].session_timeout_ms,
            rebalance_timeout_ms=None if join is None else join[1].rebalance_timeout_ms,
            partitions=partitions,
            **stated,
        )

    def _is_in(self, row: Row) -> bool:
        """Whether the row's member belonged to the group when the join phase ended."""
        return row.is_of_phase and (row.gone is None or row.gone.at_ms > self.facts.join_phase_ms)

    def _role_of(self, row: Row) -> str | None:
        join_phase = self.facts.join_phase
        if join_phase is None or not self._is_in(row):
            return None
        return "leader" if row.member.member_id == join_phase.leader else "follower"

    def _after(self, at_ms: int | None) -> int | None:
        return None if at_ms is None else at_ms - self.facts.began.ms

    # The complete record.

    def record(self) -> RebalanceRecord:
        facts = self.facts
        started, join_phase = facts.started, facts.join_phase
        began_ms, now_ms = facts.began.ms, self.until_ms
        change = leader_change(facts)
        return RebalanceRecord(
            group=self.group_id,
            sequence=facts.sequence,
            previous_generation=started.generation,
            generation=facts.generation,
            previous_state=started.previous_state,
            initial=started.previous_state == EMPTY,
            follows=self._follows,
            superseded_by=facts.superseded_by,
            group_type=started.kind.value,
            protocol_type=facts.protocol_type,
            started_at_ms=facts.began.wall_ms,
            trigger=trigger_record(Cause(started.trigger, facts.began), now_ms=now_ms),
            further_causes=tuple(
                trigger_record(cause, began_ms, now_ms=now_ms) for cause in facts.causes
            ),
            further_causes_dropped=facts.causes_dropped,
            timeline=self._timeline(),
            waited_for=self._waited_for,
            outcome=facts.outcome or RebalanceOutcome.RUNNING,
            error=facts.error.name if facts.error else None,
            protocol=self._protocol(),
            leader=None if join_phase is None else cut_or_none(join_phase.leader),
            leader_changed=change is not None,
            leader_change=change,
            members_before=self._members_before,
            members_after=self._members_after,
            partitions=(
                self._moves.counts()
                if facts.consumers is None
                else consumer_waits.partition_counts(facts.consumers)
            ),
            stopped=Stopped(
                member_count=self._stopped_count,
                longest_ms=self._stopped_longest_ms,
                total_ms=self._stopped_total_ms,
                open_count=self._open_count,
            ),
            unread=self._unread,
            restart_ms=facts.restart_ms,
            pending_transactions=started.pending_transactions,
            fenced_commits=facts.fenced_commits,
            members=tuple(self._listed),
            members_dropped=len(self._rows) - len(self._listed) + facts.gone_dropped,
        )

    def _protocol(self) -> str | None:
        facts = self.facts
        if facts.consumers is not None:
            return cut_or_none(facts.consumers.assignor)
        return None if facts.join_phase is None else cut_or_none(facts.join_phase.protocol_name)

    def _timeline(self) -> Timeline:
        facts = self.facts
        join_phase = facts.join_phase
        durable_ms = facts.finished_ms if facts.outcome is RebalanceOutcome.STABLE else None
        if facts.consumers is not None:
            durable_ms = facts.consumers.durable_ms
        consumers = facts.consumers
        return Timeline(
            extensions_ms=tuple(at_ms - facts.began.ms for at_ms in facts.extensions_ms),
            stalled_ms=tuple(at_ms - facts.began.ms for at_ms in facts.stalled_ms),
            join_phase_ms=None if join_phase is None else self._after(facts.join_phase_ms),
            join_phase_end=None if join_phase is None else join_phase.end.value,
            leader_synced_ms=self._after(facts.leader_synced_ms),
            assigned_ms=None if consumers is None else self._after(consumers.assigned_ms),
            assigned_by=None if consumers is None else consumers.assigned_by,
            durable_ms=self._after(durable_ms),
            finished_ms=self._after(facts.finished_ms),
        )
