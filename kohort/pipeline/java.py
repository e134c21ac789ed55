"""Finds this machine's Java, defines JVM options, and filters the JVM's standard error."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from kohort.pipeline.errors import UnavailableError

NOISE: Final = (b"WARNING: Using incubator modules:",)
"""Lines that Java writes because of Spark's own options, and that no option suppresses."""
STDERR: Final = 2

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties").absolute().as_uri()

LOGGING: Final = f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"
"""Option that sets Spark's log level from the start. Code that sets JVM options must include it."""

QUICK: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:ReservedCodeCacheSize=240m "
    "-XX:MetaspaceSize=256m"
)
"""JVM options for many queries of a few seconds each. C2 would take longer to compile Spark's
generated code than that code runs, and a concurrent collector has no core of its own. Without C2,
the JVM limits compiled code to 48 MB and stops compiling there, so the limit is set to 240 MB, the
default with C2. With the default of `MetaspaceSize`, the JVM collected its whole heap four times
while Spark's classes were loaded."""


def find_java() -> str:
    """Return the path of the Java launcher that Spark will use.

    Raises:
        UnavailableError: no Java found.
    """
    if home := os.environ.get("JAVA_HOME"):
        launcher = Path(home, "bin", "java")
        if launcher.exists():
            return str(launcher)
        # Spark does not search the PATH if JAVA_HOME is set.
        raise UnavailableError(
            f"JAVA_HOME is {home}, but {launcher} does not exist.\n"
            "Spark needs Java 17 or 21: correct JAVA_HOME, or unset it for the `java` of the PATH."
        )
    if launcher_path := shutil.which("java"):
        return launcher_path
    raise UnavailableError(
        "Spark needs Java 17 or 21; it is not on the PATH, and JAVA_HOME is not set.\n"
        "On Debian: apt-get install openjdk-17-jre-headless"
    )


@contextmanager
def without_java_warnings() -> Iterator[None]:
    """Drop the lines of NOISE from the standard error of child processes started in the context."""
    reader, writer = os.pipe()
    original = os.dup(STDERR)
    os.dup2(writer, STDERR)
    os.close(writer)
    source, sink = os.fdopen(reader, "rb"), os.fdopen(original, "wb", buffering=0)
    # The thread ends when the last process that writes to the pipe exits, possibly this process.
    threading.Thread(target=_filter, args=(source, sink), name="stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(original, STDERR)


def _filter(source: BinaryIO, sink: BinaryIO) -> None:
    with source, sink:
        for line in source:
            if not line.startswith(NOISE):
                sink.write(line)
