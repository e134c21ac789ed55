"""The garbage collector, which has nothing to find among rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_rests() -> Iterator[None]:
    """Meanwhile, cycles of objects are not looked for.

    Rows of a batch are millions of objects, none of them in a cycle. They live until the batch is
    done, and the collector, which looks at all that live whenever so many more have come, takes
    almost half of the batch's time to find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
