"""Executes the commands of one group in order, and carries out their effects.

A batch consists of expired deadlines and waiting commands. The group processes each of them with
the same `now`; then all their records are appended at once, requests are answered, and new
deadlines go to the group's timers. While no append is in progress, `submit` executes a command
itself, and the group needs no task. A task exists only while an append is in progress, an exclusive
command has steps left, or commands are in the inbox. Commits wait until the event loop has read all
sockets, because an append costs more than the rest of a commit, and several commits can share an
append. Heartbeats of consumer groups share appends as well; each builds on the changes of the
heartbeats before it (`Outbox.shared`).

If an append fails, each write in it undoes its changes in memory and answers its requests with an
error; the group stays in service. If it failed because a record cannot be encoded or is too large,
each write is appended again on its own (`Outbox.append_singly`), so that only the faulty one fails.

No request of a peer makes a step raise an exception. If a step raises one nevertheless, the broker
has a bug, and the state in memory is no longer trusted: the group is rebuilt from the log. The
command whose step raised is answered UNKNOWN_SERVER_ERROR, all other waiting commands
COORDINATOR_NOT_AVAILABLE. An exception after the steps (while records are made or appended) cannot
be attributed to a command, and all are answered COORDINATOR_NOT_AVAILABLE.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, assert_never

from kohort.broker.coordinator.answers import AnswerQueue
from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.inbox import Batch, Inbox, PacedCommands
from kohort.broker.coordinator.timers import GroupTimers
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, yield_to_loop
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
from kohort.groups.group import Group
from kohort.groups.requests import Now
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.coordinator.host import GroupHost

logger = logging.getLogger(__name__)

FAULTS_MAX: Final = 10
"""Exceptions after which a group stays unavailable until the broker restarts. Each exception
rebuilds the group from the log, and a client that can cause exceptions must not keep the broker
busy with rebuilding."""

_END: Final = object()


class _Phase(Enum):
    """What the actor is doing, which determines how it handles a new command."""

    IDLE = auto()
    """No work is left: `submit` executes a new command, or the phase becomes GATHERING."""
    GATHERING = auto()
    """Commands wait in the inbox until the next event loop iteration executes them."""
    WORKING = auto()
    """A new command waits in the inbox until the running task (`_work`) takes it."""
    UNAVAILABLE = auto()
    """New commands are refused: the group caused `FAULTS_MAX` exceptions, or cannot be reloaded."""


_IDLE: Final = _Phase.IDLE
_GATHERING: Final = _Phase.GATHERING
_WORKING: Final = _Phase.WORKING
_UNAVAILABLE: Final = _Phase.UNAVAILABLE


@dataclass(slots=True)
class _Unfinished:
    """The remaining steps of one or more exclusive commands (`Command.is_exclusive`)."""

    steps: Steps[None]
    ticket: Deferred[Any] | None
    """The ticket (deferred response) of the command to which the next step belongs."""


class GroupActor:
    """Executes the commands of one group. All requests arrive through `submit`, except heartbeats
    and syncs that can be answered at once, and reads.
    """

    __slots__ = (
        "_answers",
        "_faults",
        "_host",
        "_inbox",
        "_paced",
        "_partition",
        "_phase",
        "_timers",
        "_unfinished",
        "_waiting",
        "group",
    )

    def __init__(self, group: Group, host: "GroupHost") -> None:
        self.group = group
        self._host = host
        self._partition: int | None = None
        """Partition of the log that stores the group; None before its first record is appended."""
        self._inbox = Inbox()
        self._waiting: dict[Deferred[Any], None] = {}
        """Tickets (deferred responses) of executed commands, until they are answered."""
        self._answers = AnswerQueue(self._waiting, host.answer_slices)
        self._phase: _Phase = _IDLE
        self._unfinished: _Unfinished | None = None
        self._paced = PacedCommands()
        """Commands that will write a GroupRecord, queued until the pause after the append of the
        previous GroupRecord is over."""
        self._faults = 0
        self._timers: GroupTimers | None = None

    @property
    def waiting_count(self) -> int:
        """Number of requests that the group has not answered yet."""
        return len(self._waiting) + len(self._inbox) + len(self._paced)

    @property
    def fault_count(self) -> int:
        """How often an exception has led to rebuilding the group from the log."""
        return self._faults

    @property
    def is_available(self) -> bool:
        """False after `FAULTS_MAX` exceptions, or if the group cannot be reloaded."""
        return self._phase is not _UNAVAILABLE

    @property
    def is_at_rest(self) -> bool:
        return self._phase is _IDLE and not (self._inbox or self._paced)

    def begin(self) -> None:
        """Carry out the effects of creating the group."""
        self._step_now(Batch((), ()))

    def submit(self, command: Command) -> None:
        """Accept a command, and apply the first of these rules that matches:

        - The group is unavailable: the command is refused.
        - It writes a GroupRecord, and the pause after the last such record is not over: it waits
          for the end of the pause, unless `inbox_max` commands do so already.
        - The phase is IDLE: the command is executed at once; or, if it `is_gathered`, in the next
          event loop iteration, with the commands that have arrived by then.
        - Otherwise the command waits in the inbox. If the inbox is full, the command is refused,
          unless it has no ticket: the broker's own commands are few and are not retried.

        Refused commands are answered COORDINATOR_NOT_AVAILABLE.
        """
        phase = self._phase
        if phase is not _UNAVAILABLE:
            if command.writes_group_record and self._paced.put(
                command,
                self._host.monotonic_ms(),
                count_max=self._host.inbox_max,
                on_end=self._end_pause,
            ):
                return
            if phase is _IDLE and not command.is_gathered:
                self._step_now(Batch((), (command,)))
                return
            if command.ticket is None or len(self._inbox) < self._host.inbox_max:
                self._inbox.append(command)
                if phase is _IDLE:
                    self._phase = _GATHERING
                    asyncio.get_running_loop().call_soon(self._step_gathered)
                return
        if command.ticket is not None:
            command.ticket.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def apply_ready_effects(self) -> None:
        """Carry out the effects of a request that called the group without `submit`. Such a request
        may be executed while an append is in progress, and appends nothing itself.
        """
        self._apply_effects(self.group.outbox.take_ready_effects(), self._host.now())

    async def unload(self, error: ErrorCode) -> None:
        """Prepare for the broker's stop: answer all requests with `error`, in slices, and forget
        all deadlines.
        """
        self._unfinished = None
        now = self._host.now()
        self.group.unload(error, now)
        self._apply_effects(self.group.outbox.take_ready_effects(), now)
        self.cancel_timers()
        while self._answers.has_more:
            await yield_to_loop()
        self._fail_all(KafkaError(error))

    def cancel_timers(self) -> None:
        """Cancel all timers and release them.

        The timers and this actor refer to each other. If the cycle is not broken, only a full
        garbage collection frees it, perhaps hours after the group was deleted.
        """
        if self._timers is not None:
            self._timers.cancel_all()
            self._timers = None

    # Batches.

    def _step_now(self, batch: Batch) -> None:
        """Execute a batch now; start a task if an append is pending, or steps or commands are
        left.
        """
        pending = self._step(batch)
        if pending is not None or self._unfinished is not None:
            self._start_task(pending)
        elif self.group.is_dead:
            self._retire()
        elif self._phase is _IDLE and not self._inbox.is_empty:
            self._start_task(None)

    def _step_gathered(self) -> None:
        """Execute the commands that have arrived since the last event loop iteration."""
        self._phase = _IDLE
        if not self._inbox.is_empty:
            self._step_now(self._inbox.take_batch())

    def _start_task(self, pending: Awaitable[None] | None) -> None:
        self._phase = _WORKING
        self._host.start_task(self._work(pending), f"group {self.group.group_id}")

    async def _work(self, pending: Awaitable[None] | None) -> None:
        """Await the append `pending`, then execute batches until the inbox is empty."""
        time_slice = Slice(self._host)
        try:
            while self._phase is _WORKING:
                if pending is not None:
                    outcome = await self._wait_outcome(pending)
                    time_slice.begin()
                    pending = self._on_append_done(outcome)
                    continue
                if self._unfinished is not None:
                    async with self._host.step_lock:
                        await yield_to_loop()
                        time_slice.begin()
                        if self._unfinished is not None:  # Otherwise the group has been unloaded.
                            pending = self._continue_steps(self._unfinished)
                    continue
                if self.group.is_dead or self._inbox.is_empty:
                    break
                # Several batches per slice: after a rebalance of a consumer group, the heartbeats
                # of all members wait here, and each is a batch of its own.
                pending = self._step(self._inbox.take_batch())
                if pending is None and not self._inbox.is_empty:
                    await time_slice.pause()
        finally:
            if self._phase is _WORKING:
                self._phase = _IDLE
        if self.group.is_dead:
            self._retire()

    def _step(self, batch: Batch) -> Awaitable[None] | None:
        """Execute the deadlines and commands of a batch, and carry out their effects; return the
        append that is still pending, or None.
        """
        now = self._host.now()
        due, commands = batch
        stepped: Command | None = None
        if commands and commands[0].shares_append:
            self._unfinished = _Unfinished(self._sharing_steps(commands, now), None)
            return self._continue_steps(self._unfinished)
        try:
            if due:
                self.group.on_deadlines(due, now)
            for command in commands:
                stepped = command
                if command.ticket is not None:
                    self._waiting[command.ticket] = None
                steps = command.step(self.group, now)
                if steps is not None:
                    # The command is exclusive, so it is the last of this batch.
                    self._unfinished = _Unfinished(steps, command.ticket)
                    return self._continue_steps(self._unfinished)
            stepped = None
            return self._apply_effects_and_append(now)
        except Exception:
            logger.exception("Internal error in a step of group %r", self.group.group_id)
            self._rebuild(None if stepped is None else stepped.ticket, commands)
            return None

    def _sharing_steps(self, commands: Sequence[Command], now: Now) -> Steps[None]:
        """Execute commands that share an append. If the changes of a command have to be durable
        before the next command, the remaining commands are put back into the inbox.
        """
        unfinished = self._unfinished
        assert unfinished is not None
        outbox = self.group.outbox
        for command in commands:
            if command.ticket is not None:
                self._waiting[command.ticket] = None
        for count, command in enumerate(commands, start=1):
            unfinished.ticket = command.ticket
            steps = command.step(self.group, now)
            if steps is not None:
                yield from steps
            if outbox.is_writing and count < len(commands):
                for later in commands[count:]:
                    if later.ticket is not None:
                        self._waiting.pop(later.ticket, None)
                self._inbox.put_back(commands[count:])
                break
        outbox.stage_shared()

    def _continue_steps(self, unfinished: _Unfinished) -> Awaitable[None] | None:
        """Run an exclusive command's steps for a time slice; return the pending append or None."""
        time_slice = Slice(self._host)
        is_stepping = False
        try:
            while True:
                is_stepping = True
                if next(unfinished.steps, _END) is _END:
                    self._unfinished = None
                is_stepping = False
                pending = self._apply_effects_and_append(self._host.now())
                if pending is not None or self._unfinished is None or time_slice.is_over():
                    return pending
        except Exception:
            logger.exception("Internal error in a step of group %r", self.group.group_id)
            self._rebuild(unfinished.ticket if is_stepping else None, ())
            return None

    def _on_append_done(self, outcome: asyncio.Future[None]) -> Awaitable[None] | None:
        """Report the result of an append to the group; return the next pending append, or None."""
        try:
            now = self._host.now()
            self._paced.end_append(now.ms)
            try:
                outcome.result()
            except KafkaError as error:
                self._report_failure(error, now)
            else:
                self.group.on_appended(now)
            return self._apply_effects_and_append(now)
        except Exception:
            logger.exception("Internal error after an append of group %r", self.group.group_id)
            self._rebuild(None, ())
            return None

    def _apply_effects_and_append(self, now: Now) -> Awaitable[None] | None:
        """Carry out the group's effects, including its appends; return the first append that does
        not complete at once, or None.
        """
        log = self._host.log
        while (append := self._apply_effects(self.group.outbox.collect(), now)) is not None:
            if self._partition is None:
                self._partition = partition_of(self.group.group_id, log.partition_count)
            try:
                pending = log.append(self._partition, append.records, wall_ms=now.wall_ms)
            except KafkaError as error:
                self._report_failure(error, now)
                continue
            if append.is_paced:
                self._paced.begin_append(now.ms)
            if pending is not None:
                return pending
            if append.is_paced:
                self._paced.end_append(self._host.monotonic_ms())
            self.group.on_appended(now)
        return None

    def _report_failure(self, error: KafkaError, now: Now) -> None:
        self._host.note_append_failure(self.group.group_id, error)
        self.group.on_append_failed(error.code, now)

    def _apply_effects(self, effects: Sequence[Effect], now: Now) -> Append | None:
        """Answer requests, set timers, notify observers; return the `Append` among the effects,
        without starting it.
        """
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
                    self._ensure_timers().schedule(key, deadline_ms)
                case ScheduleSessions(deadlines=deadlines):
                    self._ensure_timers().schedule_soon(deadlines)
                case Cancel(key=key):
                    self._ensure_timers().cancel(key)
                case Append():
                    append = effect
                case _:
                    assert_never(effect)
        return append

    async def _wait_outcome(self, pending: Awaitable[None]) -> asyncio.Future[None]:
        """Wait for an append without a time limit, because every later step depends on it. Answer
        the waiting clients with an error every `commit_timeout_ms`.
        """
        outcome = asyncio.ensure_future(pending)
        try:
            while not outcome.done():
                await asyncio.wait([outcome], timeout=self._host.commit_timeout_ms / 1_000)
                if not outcome.done():
                    self._answer_late()
        finally:
            outcome.cancel()  # Does nothing unless this task is cancelled.
        return outcome

    def _answer_late(self) -> None:
        now = self._host.now()
        logger.warning("An append for group %r is taking long", self.group.group_id)
        self.group.on_append_late()
        self._apply_effects(self.group.outbox.take_ready_effects(), now)
        self._fail_inbox(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _end_pause(self) -> None:
        """Enqueue the commands in `_paced`: the pause after the last GroupRecord is over."""
        commands = self._paced.take()
        if self.group.is_dead:
            for command in commands:
                self._host.submit(self.group.group_id, command)
            return
        self._inbox += commands
        if self._inbox and self._phase is _IDLE:
            self._start_task(None)

    # Timers.

    def _ensure_timers(self) -> GroupTimers:
        if self._timers is None:
            self._timers = GroupTimers(self._host, self._on_deadlines)
        return self._timers

    def _on_deadlines(self, keys: list[TimerKey], now_ms: int) -> None:
        """Process expired deadlines: at once if idle, else after the commands in the inbox."""
        del now_ms
        if self._phase is _IDLE:
            self._step_now(Batch(keys, ()))
        else:
            self._inbox.put_due(keys)

    # Removal and rebuilding.

    def _retire(self) -> None:
        """Remove the group, and submit the commands in its inbox to the host again."""
        self.cancel_timers()
        self._host.remove(self.group)
        for command in self._inbox.take_all():
            self._host.submit(self.group.group_id, command)

    def _rebuild(self, failed_ticket: Deferred[Any] | None, commands: Sequence[Command]) -> None:
        """Recover from an exception: fail all requests, and read the group from the log.

        Args:
            failed_ticket: the ticket of the command whose step raised; None outside of a step.
            commands: the commands of the batch in progress. Commands without an answer fail,
                whether they were executed or not.
        """
        self._faults += 1
        if self._faults >= FAULTS_MAX:
            self._phase = _UNAVAILABLE
        self._unfinished = None
        self.cancel_timers()
        self._inbox.forget_due()
        if failed_ticket is not None and failed_ticket in self._waiting:
            del self._waiting[failed_ticket]
            failed_ticket.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        for command in commands:
            if command.ticket is not None and not command.ticket.is_done:
                self._waiting[command.ticket] = None
        self._fail_all(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            self.group.close()
            self.group = self._host.reload(self.group.group_id)
            append = self._apply_effects(self.group.take_effects(), self._host.now())
            assert append is None, "a group that was read from the log has nothing to add to it"
        except Exception:
            logger.exception(
                "Group %r cannot be reloaded and stays unavailable", self.group.group_id
            )
            self._phase = _UNAVAILABLE
            self.cancel_timers()

    def _fail_all(self, error: KafkaError) -> None:
        self._answers.fail_all(error)
        self._fail_inbox(error)

    def _fail_inbox(self, error: KafkaError) -> None:
        """Answer the requests in the inbox with `error`; commands without a ticket stay there."""
        self._inbox += self._paced.take()
        self._inbox.fail_requests(error)
