"""Counts what the interpreter does: a measure of work that no other process can disturb."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from kohort.testing.virtual_clock import VirtualClock

FOLDERS = ("/broker/", "/client/", "/groups/", "/protocol/")


BYTECODES_PER_MS: Final = 30_000
"""On the machines of today, or not far from it."""


class Meter:
    """How many bytecodes of broker, client, groups and protocol have run."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401 - see sys.
        if event == "call":
            if not any(folder in frame.f_code.co_filename for folder in FOLDERS):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.count += 1
        return self.trace


class WorkClock(VirtualClock):
    """Time passes as another clock says, and with every bytecode while a meter runs: what ends by
    the clock ends after the same work on every machine.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.meter = Meter()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + self.meter.count // BYTECODES_PER_MS

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def advance(self, duration_ms: int) -> int:
        return self._clock.advance(duration_ms)


@contextmanager
def metered(clock: WorkClock | None = None) -> Iterator[Meter]:
    """Frames that are entered within are counted; `clock` is to go by them."""
    meter, before = Meter(), sys.gettrace()
    if clock is not None:
        clock.meter = meter
    sys.settrace(meter.trace)
    try:
        yield meter
    finally:
        sys.settrace(before)
