"""Where the tests find Java, Kafka's jars and our own small Java programs.

`scripts/fetch-jars` puts them under `.cache/java`. A machine without Java can still run the other
tests: each function here skips the test that calls it, with the reason. On the build machine
(CI=true, or REQUIRE_JAVA=1 anywhere) a missing piece is a failure instead, so that nothing
is left out unseen.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, Literal, NoReturn

import pytest

KAFKA_VERSION = "4.4.0"
TOOLS_VERSION = "4.3.1"

Kind = Literal[
    "broker", "earlier", "tools", "apps", "mirror", "spring", "oauth", "registry", "iceberg"
]

ROOT: Final = Path(__file__).parents[3]
CACHE: Final = ROOT / ".cache" / "java"
LOG_SETTINGS: Final = ROOT / "tests" / "java" / "log4j2.properties"
"""Log4j's: what a JVM of ours says goes to its standard error."""


def java() -> str:
    """The path of the Java launcher."""
    home = os.environ.get("JAVA_HOME")
    if home and (launcher := Path(home, "bin", "java")).exists():
        return str(launcher)
    return shutil.which("java") or missing("Java is not installed")


def jar(name: str) -> Path:
    """The jar of one artifact of Kafka 4.4.0, such as `jar("kafka-clients")`.

    Its JSON message definitions are under common/message inside.
    """
    path = CACHE / "broker" / f"{name}-{KAFKA_VERSION}.jar"
    return path if path.exists() else missing(f"{path.name} was not fetched")


def classpath(kind: Kind = "broker") -> str:
    """Our own programs with Kafka 4.4.0 itself, or what is made of it, which is 4.3.1: its command
    line tools, or Streams and Connect.
    """
    jars = CACHE / kind
    if not jars.is_dir():
        missing(f"Kafka's jars for {kind} were not fetched")
    return f"{CACHE / 'classes' / kind}{os.pathsep}{jars}/*"


def fetch(kind: Kind) -> None:
    """Gets jars that `make setup` leaves out, because only tests in long form want them."""
    for tool in ("javac", "mvn"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed")
    subprocess.run([ROOT / "scripts" / "fetch-jars", CACHE, kind], check=True)


def missing(what: str) -> NoReturn:
    """Skips the calling test, or fails it where everything has to be there."""
    reason = f"{what} (make setup installs what the tests need)"
    if required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def required() -> bool:
    """Whether a missing outside tool is a failure."""
    return os.environ.get("CI") == "true" or os.environ.get("REQUIRE_JAVA") == "1"
