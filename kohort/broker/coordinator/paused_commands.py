"""Commands of one group that wait for the pause behind a GroupRecord to end.

How long a pause is, and why, is in :mod:`kohort.broker.core.group.write_pacing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kohort.broker.coordinator.command import Command
from kohort.broker.core.group.records import DurableRecord, GroupRecord
from kohort.broker.core.group.states import GroupState
from kohort.broker.core.group.write_pacing import WritePacing


class PausedCommands:
    """The commands of one group that wait; times are monotonic."""

    __slots__ = ("_began_ms", "_commands", "_pacing")

    def __init__(self) -> None:
        self._pacing = WritePacing()
        self._commands: list[Command] = []
        self._began_ms: int | None = None
        """When the append under way began, if it is paced; None for any other append."""

    def __len__(self) -> int:
        return len(self._commands)

    def put(
        self, command: Command, now_ms: int, *, count_max: int, on_end: Callable[[], None]
    ) -> bool:
        """Put a command aside, and call `on_end` when the pause is over; False if there is no
        pause, or if as many wait as may.
        """
        pause_ms = self._pacing.wait_ms(now_ms)
        if pause_ms <= 0 or len(self._commands) >= count_max:
            return False
        if not self._commands:
            asyncio.get_running_loop().call_later(pause_ms / 1_000, on_end)
        self._commands.append(command)
        return True

    def take(self) -> list[Command]:
        """Take out all that wait."""
        commands, self._commands = self._commands, []
        return commands

    def note_written(self, began_ms: int, ended_ms: int) -> None:
        """A record that `is_paced` was appended at once."""
        self._pacing.note(began_ms, ended_ms)

    def note_writing(self, began_ms: int, *, paced: bool) -> None:
        """An append is under way."""
        self._began_ms = began_ms if paced else None

    def note_end(self, now_ms: int) -> None:
        """The append under way has ended, however that was."""
        began_ms, self._began_ms = self._began_ms, None
        if began_ms is not None:
            self._pacing.note(began_ms, now_ms)


def is_paced(state: GroupState, records: Sequence[DurableRecord]) -> bool:
    """Is a GroupRecord among these that was written because static members came back?

    It is one if the group is STABLE: that of a new generation is written before the group gets
    there, that of a group without members in EMPTY.
    """
    if state is GroupState.STABLE:
        # No generator: a hundred commits of members may share an append.
        for record in records:
            if record.__class__ is GroupRecord:
                return True
    return False
