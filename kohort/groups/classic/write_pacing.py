"""Limits how often the GroupRecord of a group, which holds all its members, is written.

Kafka's format has no smaller record for the return of one static member, so a rolling restart of a
group of five thousand would otherwise write five thousand records of a megabyte.
"""

from typing import Final

PAUSE_FACTOR: Final = 4
"""The pause of commands that need another GroupRecord, as a multiple of the time that the last one
took."""

PAUSE_FREE_MS: Final = 50
"""Waits up to this long are skipped, so that a single restart, or a leader's right after another,
does not wait."""

PAUSE_MAX_MS: Final = 1_000
"""Upper bound: a hanging disk must not lead to long pauses."""


class WritePacing:
    """The write pacing of one group; times are monotonic."""

    __slots__ = ("_pause_ends_ms",)

    def __init__(self) -> None:
        self._pause_ends_ms = 0

    def note(self, began_ms: int, ended_ms: int) -> None:
        """Record that a GroupRecord was written because members returned.

        Not used for a new generation: that comes once, and costs its members many times as much
        anyway.
        """
        took_ms = ended_ms - began_ms
        pause_ms = min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS)
        self._pause_ends_ms = max(self._pause_ends_ms, began_ms) + took_ms + pause_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return how long the next GroupRecord has to wait; 0 or less for not at all."""
        return self._pause_ends_ms - PAUSE_FREE_MS - now_ms
