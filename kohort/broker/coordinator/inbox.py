"""Commands and deadlines of one group that wait until it may be stepped, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.broker.coordinator.command import Command
from kohort.groups.effects import TimerKey
from kohort.protocol.errors import KafkaError

COMMANDS_PER_BATCH: Final = 200
"""A few milliseconds' worth; then other groups and the sockets get their chance."""


class Batch(NamedTuple):
    """What the group is stepped with at once: first the deadlines, then the commands."""

    due: Sequence[TimerKey]
    commands: Sequence[Command]


class Inbox(list[Command]):
    """See the module. It is a list of the commands, so that putting one in is no call; its user
    bounds it.

    A deadline that comes behind a command takes effect after it. Otherwise a slow disk would turn
    requests that came in time into late ones: a join that waits for an append would be handled
    after the end of the join phase that it was sent for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: list[TimerKey] = []
        self._before_due = 0
        """Commands that came before the first of them."""

    @property
    def is_empty(self) -> bool:
        """Neither a command nor a deadline waits."""
        return not (self or self._due)

    def put_due(self, keys: Iterable[TimerKey]) -> None:
        """Put in deadlines that have come. Those behind others take effect with the first."""
        if not self._due:
            self._before_due = len(self)
        self._due.extend(keys)

    def take_batch(self) -> Batch:
        """Take out the next batch. It ends before the first deadline, before the first exclusive
        command, and after COMMANDS_PER_BATCH commands. Deadlines begin a batch, and an exclusive
        command has one of its own: what deadlines write down must be in the log when it is stepped.
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
                count = 1
            break
        commands = self[:count]
        del self[:count]
        self._before_due = max(self._before_due - count, 0)
        return Batch(due, commands)

    def take_all(self) -> list[Command]:
        """Take out every command; deadlines stay."""
        commands = self[:]
        self.clear()
        self._before_due = 0
        return commands

    def forget_due(self) -> None:
        """Drop the deadlines: they were those of a group that is read from the log again."""
        self._due.clear()
        self._before_due = 0

    def fail_requests(self, error: KafkaError) -> None:
        """Answer those who wait; commands without a waiter stay."""
        for command in self.take_all():
            if command.ticket is None:
                self.append(command)
            else:
                command.ticket.fail(error)
