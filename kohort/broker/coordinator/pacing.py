"""Limits how often the record of a group that holds all its members is written.

Kafka's format has no smaller record for the return of one static member, so a rolling restart of a
group of five thousand would otherwise write five thousand records of a megabyte. Commands that will
write such a record wait for a pause after the last one, and then share one append.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.broker.coordinator.command import Command

PAUSE_FACTOR: Final = 4
"""The pause after a paced append, as a multiple of the time that the append took."""

PAUSE_FREE_MS: Final = 50
"""Waits up to this long are skipped, so that a single restart, or a leader's right after another,
does not wait."""

PAUSE_MAX_MS: Final = 1_000
"""Upper bound: a hanging disk must not lead to long pauses."""


class PacedCommands:
    """The waiting commands of one group; times are monotonic.

    A new generation is not paced: it is written once, and costs its members many times as much
    anyway.
    """

    __slots__ = ("_began_ms", "_commands", "_pause_ends_ms")

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._began_ms: int | None = None
        """When the append in progress began; None if it is not paced."""
        self._pause_ends_ms = 0

    def __len__(self) -> int:
        return len(self._commands)

    def put(
        self, command: Command, now_ms: int, *, count_max: int, on_end: Callable[[], None]
    ) -> bool:
        """Queue a command, and call `on_end` when the pause is over; False if there is no pause, or
        `count_max` commands are queued.
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
