"""Derives the events of one classic group from its stored generations, commits and polls."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kohort.groups.classic.states import ClassicState
from kohort.groups.events import (
    CauseAdded,
    Evidence,
    JoinPhaseEnd,
    MemberRef,
    MemberRemoved,
    MemberReplaced,
    RebalanceAvoided,
    RemovalReason,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.model import WaitedFor
from kohort.groups.history.shares import parse_share
from kohort.groups.records import GroupRecord, StoredMember
from kohort.watch.core.commits import Signs
from kohort.watch.core.fate import Fate, Phase, fate_of
from kohort.watch.core.followed import (
    FollowedGroup,
    Poll,
    Seen,
    TimedEvent,
    at,
    ended,
    ref,
    restored,
    started,
)
from kohort.watch.core.generations import Difference, MemberSettings, difference, settings_of
from kohort.watch.core.logged import NO_LINES, GroupLog, Times, begun_by
from kohort.watch.core.origin import Cause, beginning, causes, first_seen, unknown
from kohort.watch.core.view import ClassicView

_SUPERSEDED_MAX: Final = 100
"""If at most this many generations are missing between two stored ones, each counts as a superseded
rebalance."""

_POLLS_KEPT: Final = 1_000
_ON_TIME_MS: Final = 1_000
_RESTS_KEPT: Final = 32
_RESTS_APART_MS: Final = 1_000
_UNSURE_MS: Final = 5_000


class ClassicGroup(FollowedGroup):
    """The last stored generation of a classic group, and the commits and polls since."""

    __slots__ = (
        "_at_ms",
        "_converted",
        "_offset",
        "_polls",
        "_rested",
        "_value",
        "began_between_ms",
        "settings",
        "waited",
    )

    def __init__(self) -> None:
        super().__init__()
        self._value: GroupRecord | None = None
        self._at_ms = 0
        self._offset = -1
        self._converted: Cause | None = None
        self._polls: list[Poll] = []
        self._rested: deque[int] = deque(maxlen=_RESTS_KEPT)
        """Times of polls at which the group was not rebalancing, oldest first."""
        self.waited: WaitedFor | None = None
        """The members whose expired sessions ended the last join phase; None without any."""
        self.began_between_ms: tuple[int, int] | None = None
        """The earliest and latest time at which the last rebalance may have begun; None if the
        time is known to within a second, or the group is empty."""
        self.settings: Mapping[str, MemberSettings] = {}
        """Settings of the members before and after the last rebalance, by member id."""

    @property
    def value(self) -> GroupRecord | None:
        return self._value

    def view(self) -> ClassicView | None:
        """Return the present state of the group; None without a stored generation."""
        if self._value is None:
            return None
        rested_ms = self._rested[-1] if self._rested else -1
        polls = [poll for poll in self._polls if poll.at_ms > rested_ms]
        if not polls:
            return ClassicView(self._value, self._at_ms, None)
        return ClassicView(self._value, polls[0].at_ms, polls[-1])

    def downgrade(self, record: GroupRecord, gone: Sequence[MemberRef], seen: Seen) -> None:
        """Start from the state of a consumer group that became this classic group.

        Args:
            record: the first stored generation of the classic group.
            gone: the consumers that left at the conversion; the departure of the last one begins a
                rebalance. Empty if a classic member replaced the last consumer: then none begins.
            seen: where the generation was stored.
        """
        self._keep(record, seen, is_new=True)
        if not gone:
            return
        trigger = Trigger(TriggerKind.DOWNGRADED, gone[0] if len(gone) == 1 else None)
        self._converted = Cause(trigger, seen.at_ms, is_known=True, stays_certain=True)

    def restart(self, at_ms: int) -> None:
        """Record that another coordinator took over, which restarts all sessions. A rebalance that
        the former one had not stored is lost.
        """
        super().restart(at_ms)
        self.forget_polls()
        # A rebalance begun by a downgrade is lost too.
        self._converted = None

    def forget_polls(self) -> None:
        """Drop the polls so far: they may show a rebalance that was lost with its coordinator."""
        self._polls = []

    def poll(self, poll: Poll) -> None:
        if len(self._polls) < _POLLS_KEPT:
            if self._polls and self._polls[-1].member_ids == poll.member_ids:
                # Share the set: there may be thousands of ids every second.
                poll = poll._replace(member_ids=self._polls[-1].member_ids)
            self._polls.append(poll)

    def rest(self, at_ms: int) -> None:
        if not self._rested or at_ms >= self._rested[-1] + _RESTS_APART_MS:
            self._rested.append(at_ms)

    def store(
        self, seen: Seen, record: GroupRecord, log: GroupLog = NO_LINES
    ) -> Iterator[TimedEvent]:
        """Process the next stored generation; yield the events that led to it.

        Generations may be missing between the last one and `record`. If each was superseded before
        it was stored, its rebalance is yielded too. If compaction has removed them, only the new
        state is yielded.
        """
        old = self._value
        if old is not None and record.generation == old.generation:
            yield from self._same_generation(old, record, seen)
            self._keep(record, seen, is_new=False)
            return
        is_known = old is not None
        if old is None:
            old = _before(record)
            is_known = record.generation == 1
        elif record.generation != old.generation + 1:
            skipped = record.generation - old.generation - 1
            has_gap = seen.place.gap_offset > self._offset
            is_known = 0 < skipped <= _SUPERSEDED_MAX and not has_gap
        if is_known:
            yield from self._rebalanced(old, record, seen, log)
        else:
            yield at(restored(record), seen.at_ms)
        self._keep(record, seen, is_new=True)

    def _keep(self, record: GroupRecord, seen: Seen, *, is_new: bool) -> None:
        end_ms = _end_ms(record, seen)
        signs = {}
        for member in record.members:
            kept = self._signs.get(member.member_id)
            if kept is None:
                kept = Signs(end_ms if is_new else seen.at_ms)
            elif is_new:
                kept.renew(end_ms)
            signs[member.member_id] = kept
        self._signs = signs
        self._owners = {
            partition: member.member_id
            for member in record.members
            for partition in parse_share(member.assignment) or ()
        }
        self._value, self._at_ms, self._offset = record, seen.at_ms, seen.place.offset
        self._polls = []

    # Returns of static members.

    def _same_generation(
        self, old: GroupRecord, record: GroupRecord, seen: Seen
    ) -> Iterator[TimedEvent]:
        before = {one.instance_id: one for one in old.members}
        for member in record.members:
            was = before.get(member.instance_id)
            if member.instance_id is None or was is None or was.member_id == member.member_id:
                continue
            silent_ms = max(seen.at_ms - self._signs[was.member_id].last_ms, 0)
            trigger = Trigger(
                TriggerKind.STATIC_REPLACED,
                ref(member),
                was_leader=was.member_id == old.leader_id,
                evidence=(Evidence("last_commit", silent_ms),),
            )
            yield at(MemberReplaced(was.member_id, ref(member)), seen.at_ms)
            yield at(RebalanceAvoided(trigger), seen.at_ms)

    # Rebalances.

    def _rebalanced(
        self, old: GroupRecord, record: GroupRecord, seen: Seen, log: GroupLog
    ) -> Iterator[TimedEvent]:
        times = Times(self._at_ms, seen.at_ms)
        end_ms = _end_ms(record, seen)
        changes = difference(old, record)
        phase = self._phase(old, record, end_ms, changes)
        # Earlier polls showed a rebalance that was lost when its coordinator was killed.
        self._polls = [poll for poll in self._polls if poll.at_ms >= phase.earliest_ms]
        fates = []
        for member in changes.gone:
            signs, gone_ms = self._signs[member.member_id], self._gone_ms(member, end_ms)
            fate = fate_of(member, signs, gone_ms, phase)
            fates.append((member, log.fate(member.member_id, fate, times)))
        polls = self._polls_since_rest(old)
        traces = causes(old, changes, fates, end_ms, polls) or [unknown(end_ms)]
        if self._converted is not None:
            traces, self._converted = [self._converted], None
        order = beginning(traces, phase, polls)
        if not old.members:
            order = _led_by(record.leader_id, order)
        logged = log.origin(old, record, record.generation - 1, times)
        if logged is not None:
            order = begun_by(logged, order)
        self.fates = {member.member_id: fate for member, fate in fates}
        self.settings = settings_of(old, record)
        self.began_between_ms = self._bounds(order[0], phase) if record.members else None
        self.waited = _waited(fates, order[0].at_ms, end_ms)
        yield from _skipped_rebalances(old, record, order[0].at_ms, log, times)
        yield from self._begin(old, record.generation - 1, fates, order)
        end = _end(old, phase, order[0].at_ms, end_ms)
        yield from ended(record, end, end_ms, seen.at_ms)

    def _phase(
        self, old: GroupRecord, record: GroupRecord, end_ms: int, changes: Difference
    ) -> Phase:
        earliest_ms = max([self._at_ms, *self._rests_before(end_ms)])
        kept = [self._signs[before.member_id] for before, _ in changes.kept]
        timeouts = [one.rebalance_timeout_ms for one in (*old.members, *record.members)]
        seen_ms = first_seen(self._polls, earliest_ms)
        rested = [at_ms for at_ms in self._rested if seen_ms is not None and at_ms < seen_ms]
        early = [
            signs.early_ms
            for signs in kept
            if signs.early_ms is not None and signs.early_ms >= max(rested, default=0)
        ]
        return Phase(
            earliest_ms=earliest_ms,
            end_ms=end_ms,
            timeouts_ms=(min(timeouts, default=0), max(timeouts, default=0)),
            is_sole=record.generation == old.generation + 1,
            revoked_ms=min(early, default=None),
            seen_ms=seen_ms,
            has_commits=any(signs.has_committed for signs in self._signs.values()),
        )

    def _bounds(self, first: Cause, phase: Phase) -> tuple[int, int] | None:
        """Return the earliest and the latest time at which the rebalance may have begun; None if
        the time is known to within a second.
        """
        latest_ms = phase.end_ms
        if not first.is_known or first.at_ms >= latest_ms:
            # The time of the cause is a guess, or too late: not before the end of the join phase.
            return phase.earliest_ms, latest_ms
        if first.trigger.kind is not TriggerKind.SESSION_EXPIRED:
            return None
        # Heartbeats after the last commit may have extended the session, so that it expired later.
        preparing = ClassicState.PREPARING_REBALANCE.value
        seen = [poll.at_ms for poll in self._polls if poll.state == preparing]
        latest_ms = min([latest_ms, *seen[:1]])
        is_close = latest_ms - first.at_ms <= _ON_TIME_MS
        return None if is_close else (first.at_ms, latest_ms)

    def _polls_since_rest(self, old: GroupRecord) -> list[Poll]:
        """Return the polls that showed a rebalance. If the last poll that showed none was at most
        `_UNSURE_MS` earlier, put it first, with the members of `old`: none had left yet.
        """
        if not self._polls:
            return []
        first_ms = self._polls[0].at_ms
        rested = [at_ms for at_ms in self._rested if self._at_ms <= at_ms < first_ms]
        if not rested or first_ms - rested[-1] > _UNSURE_MS:
            return self._polls
        ids = frozenset([member.member_id for member in old.members])
        return [Poll(rested[-1], ClassicState.STABLE.value, ids), *self._polls]

    def _rests_before(self, end_ms: int) -> list[int]:
        """Return the times of polls that showed no rebalance, at least `_UNSURE_MS` before the
        join phase ended at `end_ms`: because clocks differ, later polls may be after that end.
        """
        return [at_ms for at_ms in self._rested if at_ms <= end_ms - _UNSURE_MS]

    def _gone_ms(self, member: StoredMember, end_ms: int) -> int:
        """Return when a poll first showed the group without the member, but at most `end_ms`."""
        for poll in self._polls:
            if member.member_id not in poll.member_ids:
                return min(poll.at_ms, end_ms)
        return end_ms

    def _begin(
        self,
        old: GroupRecord,
        generation: int,
        fates: list[tuple[StoredMember, Fate]],
        order: tuple[Cause, ...],
    ) -> Iterator[TimedEvent]:
        first = order[0]
        for member, fate in fates:
            at_ms = first.at_ms if fate.at_ms is None else max(fate.at_ms, first.at_ms)
            yield at(MemberRemoved(ref(member), fate.reason, fate.text), at_ms)
        yield at(started(old, first.trigger, generation), first.at_ms)
        for cause in order[1:]:
            yield at(CauseAdded(cause.trigger), max(cause.at_ms, first.at_ms))


def _skipped_rebalances(
    old: GroupRecord, record: GroupRecord, began_ms: int, log: GroupLog, times: Times
) -> Iterator[TimedEvent]:
    """Yield the start of each rebalance that was superseded before it was stored. Its cause is
    unknown unless the log has it.
    """
    for generation in range(old.generation, record.generation - 1):
        cause = log.origin(old, record, generation, times) or unknown(began_ms)
        yield at(started(old, cause.trigger, generation), min(cause.at_ms, began_ms))


def _end_ms(record: GroupRecord, seen: Seen) -> int:
    """Return when the join phase ended or, before Kafka 2.1, when the generation was stored."""
    stored_ms = record.state_timestamp_ms
    return seen.at_ms if stored_ms < 0 else min(stored_ms, seen.at_ms)


def _before(record: GroupRecord) -> GroupRecord:
    """Return the empty state before the first generation; brokers before 4.0 do not store it."""
    return GroupRecord(record.group_id, None, 0, None, None, -1, ())


def _led_by(leader_id: str | None, order: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the causes with the leader's join first, because the first member to join an empty
    group becomes its leader. The trigger stays uncertain: an earlier member may have joined and
    left during the same join phase, so that no record names it.
    """
    for cause in order:
        member = cause.trigger.member
        if member is not None and member.member_id == leader_id:
            trigger = order[0].trigger._replace(kind=cause.trigger.kind, member=member)
            others = [one for one in order if one is not cause and one.trigger.member is not None]
            return (replace(order[0], trigger=trigger), *others)
    return order


def _waited(fates: list[tuple[StoredMember, Fate]], began_ms: int, end_ms: int) -> WaitedFor | None:
    """Return the members whose expired sessions ended the join phase; None without any."""
    late = [
        member.member_id
        for member, fate in fates
        if fate.reason is RemovalReason.SESSION_EXPIRED
        and fate.at_ms is not None
        and began_ms < fate.at_ms
        and end_ms - fate.at_ms <= _ON_TIME_MS
    ]
    return WaitedFor(phase="join", member_ids=tuple(late), ms=end_ms - began_ms) if late else None


def _end(old: GroupRecord, phase: Phase, began_ms: int, end_ms: int) -> JoinPhaseEnd:
    if not old.members:
        return JoinPhaseEnd.INITIAL_DELAY
    is_timeout = abs(end_ms - began_ms - phase.timeouts_ms[1]) <= _ON_TIME_MS
    return JoinPhaseEnd.TIMEOUT if is_timeout else JoinPhaseEnd.ALL_JOINED
