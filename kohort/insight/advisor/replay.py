"""Replays a trace through a group's core under a given setting, in virtual time.

Heartbeats of live members in a stable group have no effect and are not simulated, so the time to
replay a week depends only on the number of rebalances. The same trace, setting and seed always give
the same outcome, on any machine. Each kind of group has a subclass.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import zip_longest
from random import Random
from typing import Any, Final, Generic, TypeAlias, TypeVar

from kohort.groups.classic.member import SESSION
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
from kohort.groups.events import Event
from kohort.groups.group import Group
from kohort.groups.requests import Now
from kohort.insight.advisor.heartbeat_times import HeartbeatTimer, HeartbeatTimes
from kohort.insight.advisor.outcome import Meter, ReplayOutcome
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.shares import NOTHING, Share
from kohort.insight.advisor.trace import End, Rejoin, Run, Slot, Trace
from kohort.protocol.join_reason import JoinReason

Act: TypeAlias = Callable[[], None]

EVENTS_MAX: Final = 20_000_000
"""Maximum number of events: a replay that has more does not terminate."""

CALM_INTERVALS: Final = 3
"""If the trace has no action for longer than this number of heartbeat intervals, `_end_calm` is
called before the next action."""
SETTLE_MS: Final = 3_600_000
"""How long a group may take to become stable after the end of the trace. A group never becomes
stable if its consumers take longer than max.poll.interval.ms to revoke partitions."""


@dataclass(slots=True, eq=False)
class Process(ABC):
    """A simulated member: one of the successive processes in `slot`."""

    replay: "Replay[Any]"
    slot: Slot
    index: int
    instance_id: str | None
    heartbeat_times: HeartbeatTimes
    member_id: str = ""
    owned: Share = NOTHING
    reason: JoinReason = JoinReason.RESTART
    is_paused: bool = False
    is_leaving: bool = False
    """Whether the member will leave after the pending response."""
    on_end: Act | None = None

    @property
    @abstractmethod
    def is_alive(self) -> bool: ...

    @property
    @abstractmethod
    def sends_heartbeats(self) -> bool:
        """Whether the member's heartbeat thread keeps the session alive."""

    @property
    def waits_for_answer(self) -> bool:
        return False

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def answered(self, handle: "RequestHandle", body: Any) -> None:  # noqa: ANN401 - of any request.
        """Handle a response, unless the process has ended or sent another request since."""

    @abstractmethod
    def send_heartbeat(self) -> None:
        """Send a heartbeat now, if one can have an effect."""

    @abstractmethod
    def rejoin(self, reason: JoinReason, *, changes_protocols: bool) -> None:
        """Replay a rejoin of the member: by a JoinGroup, or in consumer groups by a heartbeat."""

    def pause(self) -> None:
        """Suspend the process, including its heartbeats."""
        self.replay.stop_heartbeats(self)
        self.is_paused = True
        self.replay.meter.stop_reading(self.owned, self.replay.now_ms)

    @abstractmethod
    def wake(self) -> None:
        """Resume, and handle the responses received during the pause."""

    @abstractmethod
    def end(self) -> None: ...


@dataclass(slots=True, eq=False)
class RequestHandle:
    """Identifies one request of a member; responses to earlier requests are ignored."""

    member: Process
    number: int


P = TypeVar("P", bound=Process)


class Replay(ABC, Generic[P]):
    """One replay of a trace. Calls `watch` with each event of the group and its time."""

    def __init__(
        self,
        trace: Trace,
        setting: Setting,
        *,
        seed: int = 0,
        watch: Callable[[Event, int], None] | None = None,
    ) -> None:
        self.trace = trace
        self.setting = setting
        self.seed = seed
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
        self.alive: dict[int, P] = {}
        """Live members by the index of their slot in the trace."""
        self.event_count = 0
        self._watch = watch
        self._by_id: dict[str, P] = {}
        self._heap: list[tuple[int, int, Act | None, TimerKey | None]] = []
        self._entries = 0
        self._timers: dict[TimerKey, int] = {}
        self._ready: deque[Act] = deque()

    # Methods that depend on the kind of the group.

    @abstractmethod
    def _new_process(
        self, slot: Slot, index: int, instance_id: str | None, heartbeat_times: HeartbeatTimes
    ) -> P:
        """Create the next process in `slot`; it has not joined yet."""

    def _end_calm(self) -> None:
        """Called before the first action after a calm (CALM_INTERVALS); does nothing by default."""

    def _timer(self, slot: Slot) -> HeartbeatTimer:
        """Return how the client library of the processes in `slot` times heartbeats."""
        return slot.timer

    @abstractmethod
    def leave(self, member: P, end: End | None = End.LEFT) -> None:
        """Make a member leave, or have an administrator remove it."""

    @abstractmethod
    def _renew_session(self, member: P) -> None:
        """Restart the session at the member's last heartbeat, unless it was restarted since that
        heartbeat.
        """

    @abstractmethod
    def _rejoin(self, rejoin: Rejoin) -> None:
        """Replay a rejoin that a member in the trace began on its own initiative."""

    @abstractmethod
    def _observe(self, event: Event) -> None:
        """Process an event of the group."""

    # Running.

    def run(self) -> ReplayOutcome:
        """Replay the trace, then continue until no events are left, but at most for `SETTLE_MS`."""
        self._plan()
        until_ms = max((entry[0] for entry in self._heap), default=0) + SETTLE_MS
        while self._heap:
            at_ms, _, act, key = heappop(self._heap)
            if at_ms > until_ms:
                break
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

    def after(self, delay_ms: int, act: Act) -> None:
        self._at(self.now_ms + max(delay_ms, 0), act)

    def _at(self, at_ms: int, act: Act) -> None:
        self._entries += 1
        heappush(self._heap, (at_ms, self._entries, act, None))

    def _settle(self) -> None:
        """Carry out the group's effects and the members' queued actions until none are left."""
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
                self.meter.observe(event, self.now_ms)
                self._observe(event)
                if self._watch is not None:
                    self._watch(event, self.now_ms)
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
                # Complete at once: the leader's recorded delay includes the write to disk.
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
        planned: list[tuple[int, Act]] = []
        for index, slot in enumerate(self.trace.slots):
            starts = [run.start_ms for run in slot.runs[1:]]
            for run, next_ms in zip_longest(slot.runs, starts):
                planned.append((run.start_ms, lambda i=index, s=slot: self._start(i, s)))  # type: ignore[misc]
                if run.end_ms is not None:
                    end_ms = self._random_time(run.end_ms, run.margin_ms, run.start_ms, next_ms)
                    planned.append((end_ms, lambda i=index, r=run: self._end(i, r)))  # type: ignore[misc]
            for pause in slot.pauses:
                from_ms = self._random_time(pause.from_ms, pause.margin_ms, 0, pause.until_ms)
                planned.append((from_ms, lambda i=index: self._pause(i)))  # type: ignore[misc]
                planned.append((pause.until_ms, lambda i=index: self._wake(i)))  # type: ignore[misc]
        planned += [
            (rejoin.at_ms, lambda r=rejoin: self._rejoin(r))  # type: ignore[misc]
            for rejoin in self.trace.rejoins
        ]
        planned.sort(key=lambda entry: entry[0])
        calm_ms = CALM_INTERVALS * self.setting.heartbeat_interval_ms
        before_ms = self.now_ms
        for at_ms, act in planned:
            if at_ms - before_ms > calm_ms:
                self._at(at_ms, self._end_calm)
            self._at(at_ms, act)
            before_ms = at_ms

    def _random_time(self, at_ms: int, margin_ms: int, after_ms: int, before_ms: int | None) -> int:
        """Draw a time at most `margin_ms` from `at_ms`, after `after_ms`, up to `before_ms`."""
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
            self.random, self.setting.heartbeat_interval_ms, self._timer(slot)
        )
        member = self._new_process(slot, index, instance_id, heartbeat_times)
        self.alive[index] = member
        member.join()

    def _end(self, index: int, run: Run) -> None:
        member = self.alive.get(index)
        if member is None:
            return
        if run.end is End.SILENT or not member.member_id:
            self._go_silently(member)
            return
        if run.end is End.LEFT and member.instance_id is not None:
            self._shut_down_static(member)
            return
        if member.waits_for_answer:
            # The broker reads a connection's next request only after it has answered the previous
            # one.
            member.is_leaving = True
            return
        self.leave(member, run.end)

    def _shut_down_static(self, member: P) -> None:
        """Stop a static member's process; the member is expected to return."""
        self._go_silently(member)

    def _go_silently(self, member: P) -> None:
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

    # Requests of members.

    def end_process(self, member: P) -> None:
        member.end()
        self.meter.stop_reading(member.owned, self.now_ms)
        if self.alive.get(member.index) is member:
            del self.alive[member.index]
        if member.on_end is not None:
            self._ready.append(member.on_end)

    def stop_heartbeats(self, member: P) -> None:
        """Stop a member's heartbeats; its session timeout counts from the last heartbeat."""
        if member.sends_heartbeats:
            self._renew_session(member)
        self._arm(TimerKey(SESSION, member.member_id), must=True)

    def run_when_awake(self, member: P, act: Act) -> None:
        """Run `act` now, or at the end of the member's pause."""
        if not member.is_paused:
            act()
            return
        pauses = (p.until_ms for p in member.slot.pauses if p.until_ms > self.now_ms)
        self._at(min(pauses, default=self.now_ms + 1), lambda: self.run_when_awake(member, act))

    def schedule_heartbeat(self, member: P) -> None:
        self._at(member.heartbeat_times.next_after(self.now_ms), member.send_heartbeat)

    # Timers.

    def _arm(self, key: TimerKey, *, must: bool = False) -> None:
        """Enqueue a timer; but skip a session that heartbeats keep alive, unless `must`."""
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
            if member is not None and member.sends_heartbeats:
                self._renew_session(member)
        if keys:
            self.group.on_deadlines(keys, self.clock)

    def _is_due(self, at_ms: int, key: TimerKey) -> bool:
        return self._timers.get(key) == at_ms
