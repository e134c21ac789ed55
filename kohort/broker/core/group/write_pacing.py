"""When the GroupRecord of a group, which holds all its members, may be written again.

Kafka's format has no smaller record for the return of one static member, so a rolling restart of a
group of five thousand would otherwise be five thousand records of a megabyte.
"""

from typing import Final

PAUSE_FACTOR: Final = 4
"""After a GroupRecord, commands that want another one wait this many times as long as it took."""

PAUSE_FREE_MS: Final = 50
"""A wait of up to this long is left out: a single restart, or a leader's behind another one, does
not wait."""

PAUSE_MAX_MS: Final = 1_000
"""A disk that hangs is not the record's doing."""


class WritePacing:
    """The write pacing of one group; times are monotonic."""

    __slots__ = ("_pause_ends_ms",)

    def __init__(self) -> None:
        self._pause_ends_ms = 0

    def note(self, began_ms: int, ended_ms: int) -> None:
        """A GroupRecord was written because members came back.

        Not for a generation's: that comes once, with work for all that costs many times as much.
        """
        took_ms = ended_ms - began_ms
        pause_ms = min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS)
        self._pause_ends_ms = max(self._pause_ends_ms, began_ms) + took_ms + pause_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long the next one is to wait; 0 or less for not at all."""
        return self._pause_ends_ms - PAUSE_FREE_MS - now_ms
