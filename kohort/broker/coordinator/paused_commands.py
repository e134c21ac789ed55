"""Commands of one group that wait for the pause after a GroupRecord to end.

:mod:`kohort.groups.classic.write_pacing` determines the length of the pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kohort.broker.coordinator.command import Command
from kohort.groups.classic.write_pacing import WritePacing


class PausedCommands:
    """The waiting commands of one group; times are monotonic."""

    __slots__ = ("_began_ms", "_commands", "_pacing")

    def __init__(self) -> None:
        self._pacing = WritePacing()
        self._commands: list[Command] = []
        self._began_ms: int | None = None
        """When the append in progress began, if it is paced; None for any other append."""

    def __len__(self) -> int:
        return len(self._commands)

    def put(
        self, command: Command, now_ms: int, *, count_max: int, on_end: Callable[[], None]
    ) -> bool:
        """Queue a command, and call `on_end` when the pause is over; False if there is no pause, or
        `count_max` commands are queued.
        """
        pause_ms = self._pacing.wait_ms(now_ms)
        if pause_ms <= 0 or len(self._commands) >= count_max:
            return False
        if not self._commands:
            asyncio.get_running_loop().call_later(pause_ms / 1_000, on_end)
        self._commands.append(command)
        return True

    def take(self) -> list[Command]:
        """Remove and return all queued commands."""
        commands, self._commands = self._commands, []
        return commands

    def note_written(self, began_ms: int, ended_ms: int) -> None:
        """Record a paced append that completed immediately."""
        self._pacing.note(began_ms, ended_ms)

    def note_writing(self, began_ms: int, *, paced: bool) -> None:
        """Record the start of an append."""
        self._began_ms = began_ms if paced else None

    def note_end(self, now_ms: int) -> None:
        """Record the end of the append in progress, successful or not."""
        began_ms, self._began_ms = self._began_ms, None
        if began_ms is not None:
            self._pacing.note(began_ms, now_ms)
