"""Counts what the interpreter does: a measure of work that no other process can disturb."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

FOLDERS = ("/broker/", "/client/", "/protocol/")


class Meter:
    """How many bytecodes of the broker, the client and the protocol have run."""

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


@contextmanager
def metered() -> Iterator[Meter]:
    """Frames that are entered within are counted."""
    meter, before = Meter(), sys.gettrace()
    sys.settrace(meter.trace)
    try:
        yield meter
    finally:
        sys.settrace(before)
