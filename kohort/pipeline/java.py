"""Where this machine has its Java, and how its JVMs log."""

import os
import shutil
from pathlib import Path
from typing import Final

from kohort.pipeline.errors import UnavailableError

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties").absolute().as_uri()

LOGGING: Final = f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"
"""Quiet from the beginning. Code that gives a JVM other options repeats this one."""

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:ReservedCodeCacheSize=240m"
"""Options of a JVM for many queries of a few seconds each: the second compiler would take longer
for the code that Spark makes for them than that code runs, and a concurrent collector has no core
of its own. Without the second compiler, the JVM keeps 48 MB for compiled code; when they are full,
it compiles nothing more. 240 MB is what it keeps with both."""


def find_java() -> str:
    """The path of the Java launcher, which is also the one that Spark uses.

    Raises:
        UnavailableError: there is none.
    """
    if home := os.environ.get("JAVA_HOME"):
        launcher = Path(home, "bin", "java")
        if launcher.exists():
            return str(launcher)
        # Spark looks nowhere else where it is set.
        raise UnavailableError(
            f"JAVA_HOME is {home}, and there is no {launcher}.\n"
            "Spark needs Java 17 or 21: correct JAVA_HOME, or unset it for the `java` of the PATH."
        )
    if found := shutil.which("java"):
        return found
    raise UnavailableError(
        "Spark needs Java 17 or 21, and there is none on the PATH, and no JAVA_HOME.\n"
        "On Debian: apt-get install openjdk-17-jre-headless"
    )
