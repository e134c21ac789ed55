"""One group while the broker runs: keeps its steps in order, carries out what they ask for.

A turn takes the commands that wait, steps the group with one time, awaits one append for all their
records, releases the answers and hands the deadlines to the purgatory. While nothing is being
appended there is nobody to wait for: a command is stepped by whoever brings it, and the group needs
no task. A task exists only from an append to the moment when nothing is left in the inbox. Commits
alone wait until the loop has looked at all sockets, because an append costs more than all the rest
of a commit and several can share it.

If an append fails, the group compensates (see :mod:`kohort.broker.core.group.classic.data`), and a
record that cannot be written down is nothing else: the write it belongs to fails, those that came
with it do not. So what peers send cannot make a step raise. If one does, the mistake is ours and
nothing in memory is believed any more: the command that raised is answered UNKNOWN_SERVER_ERROR,
everybody else who waits COORDINATOR_NOT_AVAILABLE, and the group is made anew from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final, assert_never

from kohort.broker.coordinator.answers import AnswerQueue
from kohort.broker.coordinator.command import ActorHost, Command
from kohort.broker.coordinator.session_timers import SessionTimers
from kohort.broker.core.group.effects import (
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
from kohort.broker.core.group.group import Group
from kohort.broker.core.group.records import GroupRecord
from kohort.broker.core.group.requests import Now
from kohort.broker.core.group.states import GroupState
from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.broker.core.steps import Steps
from kohort.broker.runtime.answer import Later
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

COMMANDS_PER_TURN: Final = 200
"""A few milliseconds' worth; then other groups and the sockets get their chance."""

PAUSE_FACTOR: Final = 4
"""After a record of the whole group, commands that want another one wait this many times as long as
it took. Kafka's format has no smaller record for the return of one static member, so a rolling
restart of a group of five thousand would otherwise be five thousand records of a megabyte."""

PAUSE_FREE_MS: Final = 50
"""So much of what is to be waited is let pass: a single restart, or a leader's behind another one,
finds nothing to wait for."""

PAUSE_MAX_MS: Final = 1_000
"""A disk that hangs is not the record's doing."""

FAULTS_MAX: Final = 10
"""After so many steps that raised, a group stays unavailable until the next start: making it anew
reads the log, and somebody who knows how to make a step raise must not keep the broker at it."""


_END: Final = object()


class GroupActor:
    """See the module. Everything but `heartbeat` and reads goes through `submit`."""

    __slots__ = (
        "_answers",
        "_began_writing",
        "_deferred",
        "_due",
        "_faults",
        "_heartbeat_timers",
        "_host",
        "_inbox",
        "_is_busy",
        "_is_gathering",
        "_pause_ends_ms",
        "_rebalance_timers",
        "_steps",
        "_waiting",
        "group",
    )

    def __init__(self, group: Group, host: ActorHost) -> None:
        self.group = group
        self._host = host
        self._inbox: list[Command] = []
        self._due: list[TimerKey] = []
        """Deadlines that came while an append was under way."""
        self._waiting: dict[Later[Any], None] = {}
        """Tickets that have no answer yet."""
        self._answers = AnswerQueue(self._waiting, host.answer_turns)
        self._is_busy = False
        """Is there a task, so that commands have to queue?"""
        self._steps: Steps[None] | None = None
        """The rest of a command that takes several turns."""
        self._is_gathering = False
        """Will the inbox be stepped at the end of this turn of the loop?"""
        self._deferred: list[Command] = []
        """Wait for the pause to end."""
        self._pause_ends_ms = 0
        self._began_writing: Now | None = None
        """When the record of all members that is on its way was asked for, if no generation's."""
        self._faults = 0
        self._heartbeat_timers: SessionTimers | None = None
        self._rebalance_timers: KeyedTimers[TimerKey] | None = None

    @property
    def waiting_count(self) -> int:
        """Requests that wait for an answer of the group."""
        return len(self._waiting) + len(self._inbox) + len(self._deferred)

    @property
    def fault_count(self) -> int:
        """Steps that have raised."""
        return self._faults

    @property
    def is_available(self) -> bool:
        """False once too many steps have raised."""
        return self._faults < FAULTS_MAX

    @property
    def is_at_rest(self) -> bool:
        """Is nothing on its way to the log, and nothing waiting for its turn?"""
        return not (self._is_busy or self._is_gathering or self._inbox or self._deferred)

    def begin(self) -> None:
        """Carry out what making the group has asked for."""
        self._go_on([])

    def submit(self, command: Command) -> None:
        """Step now if nothing is being appended, else in turn."""
        if command.writes_group and self._defer(command):
            return
        is_free = self.is_available and not self._is_busy and not self._is_gathering
        if is_free and not command.is_gathered:
            self._go_on([command])
        elif self.is_available and self._has_room_for(command):
            self._inbox.append(command)
            if is_free:
                self._is_gathering = True
                asyncio.get_running_loop().call_soon(self._step_gathered)
        elif command.ticket is not None:
            command.ticket.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _has_room_for(self, command: Command) -> bool:
        """What the broker itself asks for is little, and nothing asks for it again."""
        return command.ticket is None or len(self._inbox) < self._host.inbox_max

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Answered on the spot, in whatever state the group is; costs no turn."""
        if not self.is_available:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = self.group
        error = group.heartbeat(member_id, instance_id, generation, self._host.monotonic_ms())
        if group.has_effects:
            self._release(group.take_effects(), self._host.now())
        return error

    async def unload(self, error: ErrorCode) -> None:
        """The broker stops: answer everybody `error`, so many in a turn of the loop, and forget all
        deadlines.
        """
        self._steps = None
        now = self._host.now()
        self.group.unload(error, now)
        self._release(self.group.take_effects(), now)
        self.cancel_timers()
        while self._answers.has_more:  # noqa: ASYNC110 - they are given turn by turn.
            await asyncio.sleep(0)
        self._fail_all(KafkaError(error))

    def cancel_timers(self) -> None:
        """Forget all deadlines, and those who keep them: they know us, and such a cycle would be
        found by the next look at everything only, hours after the group has gone.
        """
        for timers in (self._heartbeat_timers, self._rebalance_timers):
            if timers is not None:
                timers.cancel_all()
        self._heartbeat_timers = self._rebalance_timers = None

    # Turns.

    def _go_on(self, commands: Sequence[Command]) -> None:
        """Take a turn, and leave the rest to a task if that has to wait."""
        pending = self._turn(commands)
        if pending is not None or self._steps is not None:
            self._start_task(pending)
        elif self.group.state is GroupState.DEAD:
            self._leave()

    def _step_gathered(self) -> None:
        """One turn for what has come since; a task of its own goes on if that is too much."""
        self._is_gathering = False
        if self._inbox and not self._is_busy and self.is_available:
            self._go_on(self._take_commands())
        if self._inbox and not self._is_busy and self.is_available:
            self._start_task(None)

    def _start_task(self, pending: Awaitable[None] | None) -> None:
        self._is_busy = True
        self._host.start_task(self._work(pending), f"group {self.group.group_id}")

    async def _work(self, pending: Awaitable[None] | None) -> None:
        """Take turns until nothing is left to do."""
        try:
            while self.is_available:
                if pending is not None:
                    outcome = await self._wait_outcome(pending)
                    pending = self._finish(outcome)
                    continue
                if self._steps is not None:
                    await asyncio.sleep(0)
                    pending = self._step_on(self._steps)
                    continue
                if self.group.state is GroupState.DEAD or not (self._inbox or self._due):
                    break
                pending = self._turn(self._take_commands())
                if pending is None and self._inbox:
                    await asyncio.sleep(0)
        finally:
            self._is_busy = False
        if self.group.state is GroupState.DEAD:
            self._leave()

    def _take_commands(self) -> list[Command]:
        count = 0
        for command in self._inbox[:COMMANDS_PER_TURN]:
            if not command.is_exclusive:
                count += 1
                continue
            count = count or 1
            break
        commands = self._inbox[:count]
        del self._inbox[:count]
        return commands

    def _turn(self, commands: Sequence[Command]) -> Awaitable[None] | None:
        """Step the group with what has come, and carry out what that asks for; returns an append
        that has to be waited for.
        """
        now = self._host.now()
        due, self._due = self._due, []
        command: Command | None = None
        try:
            if due:
                self.group.on_deadlines(due, now)
            for command in commands:
                if command.ticket is not None:
                    self._waiting[command.ticket] = None
                self._steps = command.step(self.group, now)
                if self._steps is not None:
                    return self._step_on(self._steps)
            return self._carry_out(now)
        except Exception:
            logger.exception("A step of group %r failed", self.group.group_id)
            self._start_over(None if command is None else command.ticket, commands)
            return None

    def _step_on(self, steps: Steps[None]) -> Awaitable[None] | None:
        """Go on with a command that takes several turns; returns an append as `_turn` does."""
        try:
            if next(steps, _END) is _END:
                self._steps = None
            return self._carry_out(self._host.now())
        except Exception:
            logger.exception("A step of group %r failed", self.group.group_id)
            self._start_over(None, ())
            return None

    def _finish(self, outcome: asyncio.Future[None]) -> Awaitable[None] | None:
        """An append has ended; returns the next one that has to be waited for."""
        try:
            now = self._host.now()
            began, self._began_writing = self._began_writing, None
            if began is not None:
                self._pause(began)
            try:
                outcome.result()
            except KafkaError as error:
                self._tell_outcome(error, now)
            else:
                self._tell_outcome(None, now)
            return self._carry_out(now)
        except Exception:
            logger.exception("A write of group %r failed", self.group.group_id)
            self._start_over(None, ())
            return None

    def _carry_out(self, now: Now) -> Awaitable[None] | None:
        """Do what the steps ask for, appends included as long as they need no waiting."""
        while (append := self._release(self.group.take_effects(), now)) is not None:
            try:
                pending = self._host.append(self.group.group_id, append.records, now.wall_ms)
            except KafkaError as error:
                self._tell_outcome(error, now)
                continue
            writes_members = self.group.state is GroupState.STABLE and any(
                isinstance(record, GroupRecord) for record in append.records
            )
            if pending is not None:
                self._began_writing = now if writes_members else None
                return pending
            if writes_members:
                self._pause(now)
            self._tell_outcome(None, now)
        return None

    def _tell_outcome(self, error: KafkaError | None, now: Now) -> None:
        if error is None:
            self.group.on_appended(now)
        else:
            logger.warning("An append for group %r failed: %s", self.group.group_id, error)
            self.group.on_append_failed(error.code, now)

    def _release(self, effects: Sequence[Effect], now: Now) -> Append | None:
        """Carry out effects, except for an append, which is returned."""
        append = None
        for effect in effects:
            match effect:
                case Reply():
                    self._answers.give(effect)
                case Note(event=event):
                    self._host.observe(self.group.group_id, event, now)
                case Replies(replies=replies, reply_count=count):
                    self._answers.give_all(replies, count)
                case Schedule(key=key, deadline_ms=deadline_ms):
                    self._timers_of(key).schedule(key, deadline_ms)
                case ScheduleSessions(deadlines=deadlines):
                    self._session_timers().schedule_soon(deadlines)
                case Cancel(key=key):
                    self._timers_of(key).cancel(key)
                case Append():
                    append = effect
                case _:
                    assert_never(effect)
        return append

    async def _wait_outcome(self, pending: Awaitable[None]) -> asyncio.Future[None]:
        """Wait until it is done, however long that takes, as every later step depends on it; but do
        not let clients wait for ever.
        """
        outcome = asyncio.ensure_future(pending)
        try:
            while not outcome.done():
                await asyncio.wait([outcome], timeout=self._host.commit_timeout_ms / 1_000)
                if not outcome.done():
                    self._answer_late()
        finally:
            outcome.cancel()  # Of no effect unless we are cancelled ourselves.
        return outcome

    def _answer_late(self) -> None:
        now = self._host.now()
        logger.warning("An append for group %r takes long", self.group.group_id)
        self.group.on_append_late()
        self._release(self.group.take_effects(), now)
        self._fail_inbox(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # Pauses between records of the whole group.

    def _pause(self, began: Now) -> None:
        """After the return of static members; a generation's record comes once, with work for all
        that costs many times as much.
        """
        took_ms = self._host.now().ms - began.ms
        pause_ms = min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS)
        self._pause_ends_ms = max(self._pause_ends_ms, began.ms) + took_ms + pause_ms

    def _defer(self, command: Command) -> bool:
        """Put the command aside if there is a pause; False if there is none, or too many wait."""
        pause_ms = self._pause_ends_ms - PAUSE_FREE_MS - self._host.now().ms
        if pause_ms <= 0 or len(self._deferred) >= self._host.inbox_max:
            return False
        if not self._deferred:
            loop = asyncio.get_running_loop()
            loop.call_later(pause_ms / 1_000, self._end_pause)
        self._deferred.append(command)
        return True

    def _end_pause(self) -> None:
        """Work off what has come meanwhile, in turns as large as any."""
        deferred, self._deferred = self._deferred, []
        if self.group.state is GroupState.DEAD:
            for command in deferred:
                self._host.submit(self.group.group_id, command)
            return
        self._inbox += deferred
        if self._inbox and not self._is_busy and self.is_available:
            self._start_task(None)

    # Timers.

    def _timers_of(self, key: TimerKey) -> SessionTimers | KeyedTimers[TimerKey]:
        """Made when first needed: most groups there are have no members just now."""
        if key.kind in {"session", "pending"}:
            return self._session_timers()
        if self._rebalance_timers is None:
            self._rebalance_timers = self._host.new_timers(self._on_deadlines, "Rebalance")
        return self._rebalance_timers

    def _session_timers(self) -> SessionTimers:
        if self._heartbeat_timers is None:
            timers = self._host.new_timers(self._on_deadlines, "Heartbeat")
            self._heartbeat_timers = SessionTimers(timers, self._host.session_turns)
        return self._heartbeat_timers

    def _on_deadlines(self, keys: list[TimerKey], now_ms: int) -> None:
        """An expiry is a message like any other; the group looks at the time itself."""
        del now_ms
        self._due.extend(keys)
        if not self._is_busy and self.is_available:
            self._go_on([])

    # Ends.

    def _leave(self) -> None:
        """The group is gone. What still comes for it finds another group, or none."""
        self.cancel_timers()
        self._host.remove(self)
        inbox, self._inbox = self._inbox, []
        for command in inbox:
            self._host.submit(self.group.group_id, command)

    def _start_over(self, culprit: Later[Any] | None, commands: Sequence[Command]) -> None:
        """A step raised: believe only the log. Commands of the turn that were not stepped yet count
        as if they had been.
        """
        self._faults += 1
        self._steps = None
        self.cancel_timers()
        self._due.clear()
        if culprit is not None and culprit in self._waiting:
            del self._waiting[culprit]
            culprit.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        for command in commands:
            if command.ticket is not None and not command.ticket.is_done:
                self._waiting[command.ticket] = None
        self._fail_all(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            self.group = self._host.reload(self.group.group_id)
            append = self._release(self.group.take_effects(), self._host.now())
            assert append is None, "a group that was read from the log has nothing to add to it"
        except Exception:
            logger.exception("Group %r stays unavailable", self.group.group_id)
            self._faults = FAULTS_MAX
            self.cancel_timers()

    def _fail_all(self, error: KafkaError) -> None:
        self._answers.flush()
        waiting = list(self._waiting)
        self._waiting.clear()
        for ticket in waiting:
            if not ticket.is_done:
                ticket.fail(error)
        self._fail_inbox(error)

    def _fail_inbox(self, error: KafkaError) -> None:
        """Answer requests that no step has seen; what else is there stays."""
        commands = self._inbox + self._deferred
        self._inbox, self._deferred = [], []
        for command in commands:
            if command.ticket is None:
                self._inbox.append(command)
            else:
                command.ticket.fail(error)
