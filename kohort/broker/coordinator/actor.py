"""One group while the broker runs: keeps its steps in order, carries out what they ask for.

A turn takes the commands that wait, steps the group with one time, awaits one append for all their
records, releases the answers and hands the deadlines to the purgatory. While nothing is being
appended there is nothing to wait for: a command is stepped by its caller, and the group needs
no task. A task exists only from an append to the moment when nothing is left in the inbox. Commits
alone wait until the loop has looked at all sockets, because an append costs more than all the rest
of a commit and several can share it.

If an append fails, the group compensates (see :mod:`kohort.broker.core.group.classic.data`), and a
record that cannot be written down is nothing else: the write it belongs to fails, those that came
with it do not. So what peers send cannot make a step raise. If one does, the mistake is ours and
nothing in memory is believed any more: the command that raised is answered UNKNOWN_SERVER_ERROR,
all others that wait COORDINATOR_NOT_AVAILABLE, and the group is rebuilt from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from enum import Enum, auto
from typing import Any, Final, assert_never

from kohort.broker.coordinator.answers import AnswerQueue
from kohort.broker.coordinator.command import ActorHost, Command
from kohort.broker.coordinator.log.offsets_log import partition_of
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
from kohort.broker.core.group.write_pacing import WritePacing
from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.broker.core.steps import Steps
from kohort.broker.runtime.answer import Later
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

COMMANDS_PER_TURN: Final = 200
"""A few milliseconds' worth; then other groups and the sockets get their chance."""

FAULTS_MAX: Final = 10
"""After so many steps that raised, a group stays unavailable until the next start: rebuilding it
reads the log, and a client that knows how to make a step raise must not keep the broker at it."""


_END: Final = object()


class _Phase(Enum):
    """What becomes of a command that comes now."""

    IDLE = auto()
    """It is stepped by its caller."""
    GATHERING = auto()
    """It waits for the end of this turn of the loop, and is stepped with what else has come."""
    WORKING = auto()
    """There is a task, and it waits for its turn."""
    UNAVAILABLE = auto()
    """It is refused: too many steps have raised."""


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
        "_pacing",
        "_partition",
        "_phase",
        "_rebalance_timers",
        "_steps",
        "_waiting",
        "group",
    )

    def __init__(self, group: Group, host: ActorHost) -> None:
        self.group = group
        self._host = host
        self._partition: int | None = None
        """Partition of the log that the group lives in, for good; None before its first record."""
        self._inbox: list[Command] = []
        self._due: list[TimerKey] = []
        """Deadlines that came while an append was under way."""
        self._waiting: dict[Later[Any], None] = {}
        """Tickets that have no answer yet."""
        self._answers = AnswerQueue(self._waiting, host.answer_turns)
        self._phase = _Phase.IDLE
        self._steps: Steps[None] | None = None
        """The rest of a command that takes several turns."""
        self._deferred: list[Command] = []
        """Wait for the pause to end."""
        self._pacing = WritePacing()
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
        return self._phase is not _Phase.UNAVAILABLE

    @property
    def is_at_rest(self) -> bool:
        """Is nothing on its way to the log, and nothing waiting for its turn?"""
        return self._phase is _Phase.IDLE and not (self._inbox or self._deferred)

    def begin(self) -> None:
        """Carry out what making the group has asked for."""
        self._go_on([])

    def submit(self, command: Command) -> None:
        """Step now if nothing is being appended, else in turn."""
        if command.writes_group and self._defer(command):
            return
        phase = self._phase
        if phase is _Phase.IDLE and not command.is_gathered:
            self._go_on([command])
        elif phase is not _Phase.UNAVAILABLE and (
            # What the broker itself asks for is little, and nothing asks for it again.
            command.ticket is None or len(self._inbox) < self._host.inbox_max
        ):
            self._inbox.append(command)
            if phase is _Phase.IDLE:
                self._phase = _Phase.GATHERING
                asyncio.get_running_loop().call_soon(self._step_gathered)
        elif command.ticket is not None:
            command.ticket.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Answered on the spot, in whatever state the group is; costs no turn."""
        if self._phase is _Phase.UNAVAILABLE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = self.group
        error = group.heartbeat(member_id, instance_id, generation, self._host.monotonic_ms())
        if group.has_effects:
            self._release(group.take_effects(), self._host.now())
        return error

    async def unload(self, error: ErrorCode) -> None:
        """The broker stops: answer all `error`, so many in a turn of the loop, and forget all
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
        """Forget all deadlines, and what keeps them: it refers to us, and such a cycle would be
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
        if self._phase is not _Phase.GATHERING:
            return  # A deadline has brought a task, which takes what has come.
        self._phase = _Phase.IDLE
        if self._inbox:
            self._go_on(self._take_commands())
        if self._inbox and self._is_idle():
            self._start_task(None)

    def _is_idle(self) -> bool:
        """Whether nothing else will take what is in the inbox; looked up after a turn was taken."""
        return self._phase is _Phase.IDLE

    def _start_task(self, pending: Awaitable[None] | None) -> None:
        self._phase = _Phase.WORKING
        self._host.start_task(self._work(pending), f"group {self.group.group_id}")

    async def _work(self, pending: Awaitable[None] | None) -> None:
        """Take turns until nothing is left to do."""
        try:
            while self._phase is _Phase.WORKING:
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
            if self._phase is _Phase.WORKING:
                self._phase = _Phase.IDLE
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
                self._pacing.note(began.ms, now.ms)
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
        log = self._host.log
        while (append := self._release(self.group.outbox.collect(), now)) is not None:
            if self._partition is None:
                self._partition = partition_of(self.group.group_id, log.partition_count)
            try:
                pending = log.append(self._partition, append.records, wall_ms=now.wall_ms)
            except KafkaError as error:
                self._tell_outcome(error, now)
                continue
            records = append.records
            writes_members = (
                (len(records) > 1 or records[0].__class__ is GroupRecord)
                and self.group.state is GroupState.STABLE
                and any(isinstance(record, GroupRecord) for record in records)
            )
            if pending is not None:
                self._began_writing = now if writes_members else None
                return pending
            if writes_members:
                self._pacing.note(now.ms, self._host.monotonic_ms())
            self.group.on_appended(now)
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

    def _defer(self, command: Command) -> bool:
        """Put the command aside if there is a pause; False if there is none, or too many wait."""
        pause_ms = self._pacing.wait_ms(self._host.monotonic_ms())
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
        if self._inbox and self._phase is _Phase.IDLE:
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
        if self._phase in {_Phase.IDLE, _Phase.GATHERING}:
            self._go_on([])

    # Ends.

    def _leave(self) -> None:
        """The group is gone. What still comes for it finds another group, or none."""
        self.cancel_timers()
        self._host.remove(self.group)
        inbox, self._inbox = self._inbox, []
        for command in inbox:
            self._host.submit(self.group.group_id, command)

    def _start_over(self, culprit: Later[Any] | None, commands: Sequence[Command]) -> None:
        """A step raised: believe only the log. Commands of the turn that were not stepped yet count
        as if they had been.
        """
        self._faults += 1
        if self._faults >= FAULTS_MAX:
            self._phase = _Phase.UNAVAILABLE
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
            self._phase = _Phase.UNAVAILABLE
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
