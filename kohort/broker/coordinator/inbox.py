"""Queues the commands and deadlines of one group, in order, until the group can process them.

Commands that will write a GroupMetadata record wait longer: for a pause after the last such record,
to share one append. The record contains all members, and Kafka has no smaller record for the return
of one static member, so without the pause a rolling restart of a group of five thousand would write
five thousand records of a megabyte.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kohort.broker.coordinator.command import Command
from kohort.groups.effects import TimerKey
from kohort.protocol.errors import KafkaError

COMMANDS_PER_BATCH: Final = 200
"""Maximum commands in a batch: they take a few milliseconds, after which other work runs."""


SHARING_MAX: Final = 50
"""Maximum commands that share an append: each takes some ten microseconds, and another ten when the
append is done."""


class Batch(NamedTuple):
    """Expired deadlines, and the commands that the group executes after these."""

    due: Sequence[TimerKey]
    commands: Sequence[Command]


class Inbox(list[Command]):
    """The waiting commands, a list whose length the actor limits, and the deadlines that have
    expired. A subclass of list for speed: every offset commit is appended to it.

    A deadline that expires after a command was queued takes effect after that command. Otherwise a
    slow disk would make requests late although they arrived in time: a join that waits for an
    append would be executed after the end of its join phase.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: list[TimerKey] = []
        self._before_due = 0
        """Number of commands that were queued before the first queued deadline."""

    @property
    def is_empty(self) -> bool:
        """Whether neither a command nor a deadline is queued."""
        return not (self or self._due)

    def put_due(self, keys: Iterable[TimerKey]) -> None:
        """Queue expired deadlines. They take effect together with deadlines already queued."""
        if not self._due:
            self._before_due = len(self)
        self._due.extend(keys)

    def take_batch(self) -> Batch:
        """Remove and return the next batch. A batch ends before the next deadlines, before the
        first exclusive command, and after COMMANDS_PER_BATCH commands. An exclusive command has a
        batch of its own; consecutive ones with `shares_append` share a batch. Deadlines before an
        exclusive command have a batch of their own, because the records that they stage must be in
        the log first.
        """
        due: list[TimerKey] = []
        count_max = COMMANDS_PER_BATCH
        if self._due:
            if self._before_due:
                count_max = min(count_max, self._before_due)
            else:
                due, self._due = self._due, due
        count = 0
        for command in self[:count_max]:
            if not command.is_exclusive:
                count += 1
                continue
            if not count and not due:
                count = self._sharing_count(count_max)
            break
        commands = self[:count]
        del self[:count]
        self._before_due = max(self._before_due - count, 0)
        return Batch(due, commands)

    def _sharing_count(self, count_max: int) -> int:
        """Return the number of commands in a batch that begins with an exclusive command."""
        count = 0
        for command in self[: min(count_max, SHARING_MAX)]:
            if not command.shares_append:
                break
            count += 1
        return max(count, 1)

    def put_back(self, commands: Sequence[Command]) -> None:
        """Queue the rest of the last batch again, before all other commands."""
        self[:0] = commands
        if self._due:
            self._before_due += len(commands)

    def take_all(self) -> list[Command]:
        """Remove and return all commands; deadlines stay."""
        commands = self[:]
        self.clear()
        self._before_due = 0
        return commands

    def forget_due(self) -> None:
        """Drop the queued deadlines, because the group is rebuilt from the log."""
        self._due.clear()
        self._before_due = 0

    def fail_requests(self, error: KafkaError) -> None:
        """Answer each command that came from a request with `error`; keep the others queued."""
        for command in self.take_all():
            if command.ticket is None:
                self.append(command)
            else:
                command.ticket.set_exception(error)


PAUSE_FACTOR: Final = 4
"""The pause after the append of a GroupMetadata record, as a multiple of the time that the append
took."""

PAUSE_FREE_MS: Final = 50
"""Each pause is shortened by this much; shorter pauses are omitted. So no pause delays the restart
of a single member, nor the leader's restart right after that of another member."""

PAUSE_MAX_MS: Final = 1_000
"""Upper bound: a hanging disk must not lead to long pauses."""


class PacedCommands:
    """The commands of one group that wait for the end of a pause; times are monotonic.

    An append that is followed by a pause is called paced. The append of a new generation is not
    paced: each rebalance writes only one, and costs the members many times as much as the append.
    """

    __slots__ = ("_began_ms", "_commands", "_pause_ends_ms")

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._began_ms: int | None = None
        """When the append in progress began; None if no pause follows it."""
        self._pause_ends_ms = 0

    def __len__(self) -> int:
        return len(self._commands)

    def put(
        self, command: Command, now_ms: int, *, count_max: int, on_end: Callable[[], None]
    ) -> bool:
        """Queue a command until the pause ends; the first one's `on_end` is then called. Return
        False, without queueing, if there is no pause or `count_max` commands are queued.
        """
        pause_ms = self._pause_ends_ms - PAUSE_FREE_MS - now_ms
        if pause_ms <= 0 or len(self._commands) >= count_max:
            return False
        if not self._commands:
            asyncio.get_running_loop().call_later(pause_ms / 1_000, on_end)
        self._commands.append(command)
        return True

    def take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def begin_append(self, now_ms: int) -> None:
        self._began_ms = now_ms

    def end_append(self, now_ms: int) -> None:
        """Record the end of an append, successful or not: if it is paced, the pause begins."""
        began_ms, self._began_ms = self._began_ms, None
        if began_ms is not None:
            took_ms = now_ms - began_ms
            pause_ms = min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS)
            self._pause_ends_ms = max(self._pause_ends_ms, began_ms) + took_ms + pause_ms
