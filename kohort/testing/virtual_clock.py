"""A clock that tests and simulations advance."""


class VirtualClock:
    """A :class:`~kohort.broker.runtime.clock.Clock` that moves only by calls."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, *, monotonic_ms: int = 1_000_000, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_s(self) -> float:
        return self.monotonic_ms() / 1_000

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, duration_ms: int) -> int:
        """Move both clocks forward and return the new monotonic time."""
        if duration_ms < 0:
            raise ValueError(f"monotonic time does not go back, asked for {duration_ms} ms")
        self._monotonic_ms += duration_ms
        self._wall_ms += duration_ms
        return self._monotonic_ms

    def jump_wall(self, duration_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; monotonic time stays."""
        self._wall_ms += duration_ms
