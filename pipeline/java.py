"""Where this machine has its Java."""

import os
import shutil
from pathlib import Path

from pipeline.errors import UnavailableError


def find_java() -> str:
    """The path of the Java launcher, which is also the one that Spark uses.

    Raises:
        UnavailableError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (launcher := Path(home, "bin", "java")).exists():
        return str(launcher)
    if found := shutil.which("java"):
        return found
    raise UnavailableError(
        "Spark needs Java 17 or 21, and there is none on the PATH nor at JAVA_HOME.\n"
        "On Debian: apt-get install openjdk-17-jre-headless"
    )
