"""A clock for work that takes time where nothing is really done."""

from kohort.testing.virtual_clock import VirtualClock


class BusyClock(VirtualClock):
    """Each look at the monotonic time takes so many milliseconds, as the work before it would."""

    def __init__(self, look_ms: int = 1) -> None:
        super().__init__()
        self._look_ms = look_ms

    def monotonic_ms(self) -> int:
        return self.advance(self._look_ms)
