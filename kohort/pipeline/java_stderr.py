"""Standard error of a JVM without what Java says of itself at each start.

Spark's launcher asks for the incubating module of vectors, and Java warns of it before anything can
be configured; no option keeps it from that.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

NOISE: Final = (b"WARNING: Using incubator modules:",)
STDERR: Final = 2


@contextmanager
def without_java_warnings() -> Iterator[None]:
    """Processes that are started in it write to standard error all but lines of NOISE."""
    reader, writer = os.pipe()
    kept = os.dup(STDERR)
    os.dup2(writer, STDERR)
    os.close(writer)
    source, sink = os.fdopen(reader, "rb"), os.fdopen(kept, "wb", buffering=0)
    # It ends with the last process that writes there, which may be with this one.
    threading.Thread(target=_pass_on, args=(source, sink), name="stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, STDERR)


def _pass_on(source: BinaryIO, sink: BinaryIO) -> None:
    with source, sink:
        for line in source:
            if not line.startswith(NOISE):
                sink.write(line)
