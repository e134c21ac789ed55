"""Replays a trace through the group core (`ClassicGroup`) under some setting, in virtual time.

Heartbeats without an effect are not simulated (those of live members in a stable group), so the
time to replay a week depends only on the number of rebalances. The same trace, setting and seed
give the same outcome on any machine and in any order.
"""

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import zip_longest
from random import Random
from typing import Final, TypeAlias

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import SESSION
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.states import ClassicState
from kohort.groups.config import GroupConfig
from kohort.groups.effects import (
    Append,
    Cancel,
    Effect,
    Note,
    Replies,
    Reply,
    Schedule,
    ScheduleSessions,
    TimerKey,
)
from kohort.groups.events import (
    Event,
    JoinReceived,
    MemberRemoved,
    MemberReplaced,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
)
from kohort.groups.group import Group
from kohort.groups.requests import JoinRequest, LeaveEntry, Now
from kohort.insight.advisor.heartbeat_times import HeartbeatTimes
from kohort.insight.advisor.member import Phase, RequestHandle, SimulatedMember
from kohort.insight.advisor.outcome import Meter, ReplayOutcome
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.shares import (
    COOPERATIVE,
    EAGER,
    NOTHING,
    Encoding,
    Share,
    ShortEncoding,
    assign_cooperatively,
    assign_eagerly,
)
from kohort.insight.advisor.trace import End, Rejoin, Run, Slot, Trace

Act: TypeAlias = Callable[[], None]

EVENTS_MAX: Final = 20_000_000
"""Limit for a replay that does not terminate."""


class Replay:
    """One run of one trace. It calls `watch` with each event of the group and its time."""

    def __init__(
        self,
        trace: Trace,
        setting: Setting,
        *,
        seed: int = 0,
        encoding: Encoding | None = None,
        watch: Callable[[Event, int], None] | None = None,
    ) -> None:
        self.trace = trace
        self.setting = setting
        self.encoding = encoding or ShortEncoding()
        self.protocol = COOPERATIVE if setting.cooperative else EAGER
        self.random = Random(seed)  # noqa: S311 - reproducible by its seed.
        starts = (slot.runs[0].start_ms for slot in trace.slots if slot.runs)
        self.now_ms = min([trace.begin_ms, *starts])
        self.meter = Meter(len(trace.slots), trace.begin_ms)
        self.group = Group(
            trace.group,
            GroupConfig(
                min_session_timeout_ms=1,
                max_session_timeout_ms=2**31 - 1,
                initial_rebalance_delay_ms=setting.initial_rebalance_delay_ms,
            ),
        )
        self.members = ClassicMembership(ClassicData(self.group, new_member_id=self._new_id))
        self.group.membership = self.members
        self.alive: dict[int, SimulatedMember] = {}
        """Live members by the index of their slot in the trace."""
        self.event_count = 0
        """Number of simulated events."""
        self._watch = watch
        self._ids = 0
        self._joiner: SimulatedMember | None = None
        self._by_id: dict[str, SimulatedMember] = {}
        self._heap: list[tuple[int, int, Act | None, TimerKey | None]] = []
        self._entries = 0
        self._timers: dict[TimerKey, int] = {}
        self._ready: deque[Act] = deque()
        self._shares: dict[str, Share] = {}
        self._handed_in: tuple[int, dict[str, Share]] = (-1, {})

    # Running.

    def run(self) -> ReplayOutcome:
        """Replay to the end of the trace, and until no events are left."""
        self._plan()
        while self._heap:
            at_ms, _, act, key = heappop(self._heap)
            self.now_ms = max(self.now_ms, at_ms)
            if act is not None:
                act()
            elif key is not None:
                self._expire(at_ms, key)
            self._settle()
            self.event_count += 1
            assert self.event_count < EVENTS_MAX, "the replay does not terminate"
        return self.meter.outcome()

    @property
    def clock(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    @property
    def is_calm(self) -> bool:
        """Whether the group is stable, so that heartbeats have no effect."""
        return self.members.data.state is ClassicState.STABLE

    def after(self, delay_ms: int, act: Act) -> None:
        self._at(self.now_ms + max(delay_ms, 0), act)

    def _at(self, at_ms: int, act: Act) -> None:
        self._entries += 1
        heappush(self._heap, (at_ms, self._entries, act, None))

    def _settle(self) -> None:
        """Carry out the group's effects, and those that follow from them."""
        while True:
            for effect in self.group.take_effects():
                self._carry_out(effect)
            if self.group.has_effects:
                continue
            if not self._ready:
                return
            self._ready.popleft()()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Note(event):
                self._observe(event)
            case Schedule(key, deadline_ms):
                self._schedule({key: deadline_ms})
            case ScheduleSessions(deadlines):
                self._schedule(deadlines)
            case Cancel(key):
                self._timers.pop(key, None)
            case Reply():
                self._answer(effect)
            case Replies(replies):
                for reply in replies:
                    self._answer(reply)
            case Append():
                # The disk time is part of the leader's delay.
                self.group.on_appended(self.clock)

    def _schedule(self, deadlines: Mapping[TimerKey, int]) -> None:
        for key, deadline_ms in deadlines.items():
            self._timers[key] = deadline_ms
            self._arm(key)

    def _answer(self, reply: Reply) -> None:
        ticket = reply.ticket
        if isinstance(ticket, RequestHandle):
            self._ready.append(lambda: ticket.member.answered(ticket, reply.body))

    # Scheduling the trace.

    def _plan(self) -> None:
        for index, slot in enumerate(self.trace.slots):
            starts = [run.start_ms for run in slot.runs[1:]]
            for run, next_ms in zip_longest(slot.runs, starts):
                self._at(run.start_ms, lambda i=index, s=slot: self._start(i, s))  # type: ignore[misc]
                if run.end_ms is not None:
                    end_ms = self._random_time(run.end_ms, run.margin_ms, run.start_ms, next_ms)
                    self._at(end_ms, lambda i=index, r=run: self._end(i, r))  # type: ignore[misc]
            for pause in slot.pauses:
                from_ms = self._random_time(pause.from_ms, pause.margin_ms, 0, pause.until_ms)
                self._at(from_ms, lambda i=index: self._pause(i))  # type: ignore[misc]
                self._at(pause.until_ms, lambda i=index: self._wake(i))  # type: ignore[misc]
        for rejoin in self.trace.rejoins:
            self._at(rejoin.at_ms, lambda r=rejoin: self._rejoin(r))  # type: ignore[misc]

    def _random_time(self, at_ms: int, margin_ms: int, after_ms: int, before_ms: int | None) -> int:
        """Draw a time within the margin, strictly after `after_ms` and not after `before_ms`."""
        if not margin_ms:
            return at_ms
        drawn_ms = max(at_ms + self.random.randint(-margin_ms, margin_ms), after_ms + 1)
        return drawn_ms if before_ms is None else min(drawn_ms, before_ms)

    def _start(self, index: int, slot: Slot) -> None:
        before = self.alive.get(index)
        if before is not None and before.is_leaving:
            before.on_end = lambda: self._start(index, slot)
            return
        if before is not None:
            self._go_silently(before)
        static = self.setting.static
        instance_id = slot.instance_id
        if static is not None:
            instance_id = (slot.instance_id or slot.name) if static else None
        heartbeat_times = HeartbeatTimes(
            self.random, self.setting.heartbeat_interval_ms, self.trace.look_ms
        )
        member = SimulatedMember(self, slot, index, instance_id, heartbeat_times)
        self.alive[index] = member
        member.join()

    def _end(self, index: int, run: Run) -> None:
        member = self.alive.get(index)
        if member is None:
            return
        is_said = run.end is End.REMOVED or (run.end is End.LEFT and member.instance_id is None)
        if not is_said or not member.member_id:
            self._go_silently(member)
            return
        if member.waits_for_answer:
            # The broker reads a connection's next request only after it has answered the previous
            # one.
            member.is_leaving = True
            return
        self.leave(member, run.end)

    def leave(self, member: SimulatedMember, end: End | None = End.LEFT) -> None:
        """Leave with LeaveGroup, or be removed by an administrator."""
        self.end_process(member)
        by_admin = end is End.REMOVED and member.instance_id is not None
        entry = LeaveEntry("" if by_admin else member.member_id, member.instance_id)
        self.members.leave([entry], None, self.clock)

    def _go_silently(self, member: SimulatedMember) -> None:
        self.stop_heartbeats(member)
        self.end_process(member)
        if member.member_id:
            self.meter.on_crash(member.member_id, self.now_ms)

    def _pause(self, index: int) -> None:
        if (member := self.alive.get(index)) is not None:
            member.pause()

    def _wake(self, index: int) -> None:
        if (member := self.alive.get(index)) is not None:
            member.wake()

    def _rejoin(self, rejoin: Rejoin) -> None:
        if rejoin.slot is None:
            leader = self.members.roster.leader_id
            member = self._by_id.get(leader or "")
        else:
            member = self.alive.get(rejoin.slot)
        if member is not None and member.is_alive:
            member.rejoin(rejoin.reason, changes_protocols=rejoin.changes_protocols)

    # Requests of members.

    def join(self, member: SimulatedMember, request: JoinRequest, ticket: RequestHandle) -> None:
        """Send a JoinGroup; a new member id is attributed to this member."""
        self._joiner = member
        self.members.join(request, ticket, self.clock)

    def end_process(self, member: SimulatedMember) -> None:
        """End the process of a member."""
        member.phase = Phase.GONE
        self.meter.stop_reading(member.owned, self.now_ms)
        if self.alive.get(member.index) is member:
            del self.alive[member.index]
        if member.on_end is not None:
            self._ready.append(member.on_end)

    def stop_heartbeats(self, member: SimulatedMember) -> None:
        """Stop a member's heartbeats: its session counts from the last one."""
        known = self.members.roster.get(member.member_id)
        if known is None or not member.sends_heartbeats:
            self._arm(TimerKey(SESSION, member.member_id), must=True)
            return
        last_ms = member.heartbeat_times.last_before(self.now_ms)
        if last_ms + known.session_timeout_ms > known.session_deadline_ms:
            self.members.data.start_session(known, last_ms)
        self._arm(TimerKey(SESSION, member.member_id), must=True)

    def run_when_awake(self, member: SimulatedMember, act: Act) -> None:
        """Run now, or at the end of the member's pause."""
        if not member.is_paused:
            act()
            return
        pauses = (p.until_ms for p in member.slot.pauses if p.until_ms > self.now_ms)
        self._at(min(pauses, default=self.now_ms + 1), lambda: self.run_when_awake(member, act))

    def schedule_heartbeat(self, member: SimulatedMember) -> None:
        self._at(member.heartbeat_times.next_after(self.now_ms), member.send_heartbeat)

    def assign(self, generation: int, member_ids: list[str]) -> Mapping[str, bytes]:
        """Return the leader's assignment for the joined members."""
        count = self.trace.partition_count
        if self.setting.cooperative:
            owned = {member_id: self._owned_by(member_id) for member_id in member_ids}
            shares = assign_cooperatively(owned, count)
        else:
            shares = assign_eagerly(member_ids, count)
        self._handed_in = (generation, shares)
        return {member_id: self.encoding.assignment(share) for member_id, share in shares.items()}

    def _owned_by(self, member_id: str) -> Share:
        member = self._by_id.get(member_id)
        return NOTHING if member is None or not member.is_alive else member.owned

    def share_of(self, member: SimulatedMember) -> Share:
        """Return the member's partitions in this generation, also if its member id has changed."""
        return self._shares.get(member.member_id, NOTHING)

    # Events of the group.

    def _observe(self, event: Event) -> None:
        self.meter.observe(event, self.now_ms)
        match event:
            case RebalanceStarted():
                for member in self.alive.values():
                    if member.phase is Phase.SETTLED:
                        self.schedule_heartbeat(member)
            case JoinReceived():
                member_id = event.member.member_id
                joining = self._by_id.get(member_id)
                owns = joining is not None and self.setting.cooperative and bool(joining.owned)
                self.meter.joined(member_id, self.now_ms, owns=owns)
            case RebalanceEnded(RebalanceEnd.STABLE):
                self._shares = self._handed_in[1]
            case MemberReplaced():
                old, new = event.old_member_id, event.member.member_id
                for shares in (self._shares, self._handed_in[1]):
                    if old in shares:
                        shares[new] = shares.pop(old)
            case MemberRemoved():
                removed = self._by_id.get(event.member.member_id)
                if removed is not None and removed.phase is Phase.SETTLED:
                    self.schedule_heartbeat(removed)
            case _:
                pass
        if self._watch is not None:
            self._watch(event, self.now_ms)

    # Timers.

    def _new_id(self, prefix: str) -> str:
        assert self._joiner is not None
        self._ids += 1
        member_id = f"{prefix}-{self._ids:08d}"
        self._by_id[member_id] = self._joiner
        self.meter.slot_of[member_id] = self._joiner.index
        return member_id

    def _arm(self, key: TimerKey, *, must: bool = False) -> None:
        """Schedule the deadline, unless it belongs to a session that heartbeats keep alive."""
        deadline_ms = self._timers.get(key)
        if deadline_ms is None:
            return
        if key.kind == SESSION and not must:
            member = self._by_id.get(key.member_id)
            if member is not None and member.sends_heartbeats:
                return
        self._entries += 1
        heappush(self._heap, (deadline_ms, self._entries, None, key))

    def _expire(self, at_ms: int, key: TimerKey) -> None:
        """Expire all deadlines of the same time together, as the broker does."""
        keys = [key] if self._is_due(at_ms, key) else []
        while self._heap and self._heap[0][0] == at_ms and self._heap[0][3] is not None:
            other = heappop(self._heap)[3]
            if other is not None and other not in keys and self._is_due(at_ms, other):
                keys.append(other)
        for due_key in keys:
            del self._timers[due_key]
            member = self._by_id.get(due_key.member_id) if due_key.kind == SESSION else None
            member_known = self.members.roster.get(due_key.member_id)
            if member_known is not None and member is not None and member.sends_heartbeats:
                self.members.data.start_session(
                    member_known, member.heartbeat_times.last_before(self.now_ms)
                )
        if keys:
            self.group.on_deadlines(keys, self.clock)

    def _is_due(self, at_ms: int, key: TimerKey) -> bool:
        return self._timers.get(key) == at_ms
