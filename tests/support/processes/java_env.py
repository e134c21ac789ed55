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

Kind = Literal[
    "broker",
    "earlier",
    "oldest",
    "tools",
    "apps",
    "mirror",
    "spring",
    "oauth",
    "registry",
    "iceberg",
]

ROOT: Final = Path(__file__).parents[3]
CACHE: Final = ROOT / ".cache" / "java"
LOG_SETTINGS: Final = ROOT / "tests" / "java" / "log4j2.properties"
"""Log4j's: what a JVM of ours says goes to its standard error."""

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half the work of a start; the best code after an hour does not count in tests."""


def java() -> str:
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


def classpath(kind: Kind = "broker", *, with_ours: bool = True) -> str:
    """Kafka 4.4.0 itself, or what is made of it, which is 4.3.1: its command line tools, or Streams
    and Connect; and our own programs for it, unless there are to be none.
    """
    jars = CACHE / kind
    if not jars.is_dir():
        missing(f"Kafka's jars for {kind} were not fetched")
    # The jars first: archived classes fit every class path that begins with the archive's own.
    ours = f"{os.pathsep}{CACHE / 'classes' / kind}" if with_ours else ""
    return f"{jars}/*{ours}"


def archive(kind: Kind) -> Path:
    """Where `tests.support.brokers.class_archive` leaves the classes of these jars as a JVM maps
    them into its memory.
    """
    return CACHE / f"{kind}.jsa"


def jvm(kind: Kind, *options: str, with_ours: bool = True) -> list[str]:
    """The command of a JVM with these options, on the class path of `kind`, up to the name of the
    main class.
    """
    logs = f"-Dlog4j2.configurationFile={LOG_SETTINGS}"
    return [java(), *options, logs, "-cp", classpath(kind, with_ours=with_ours)]


def quick_jvm(kind: Kind, *options: str) -> list[str]:
    """The same for a JVM that starts as fast as it can, with the archived classes if there are."""
    found = archive(kind)
    archived = (f"-XX:SharedArchiveFile={found}",) if found.exists() else ()
    # Warnings, as of an archive that fits no more, where they disturb no protocol.
    words = ("-Xlog:disable", "-Xlog:all=warning:stderr")
    return jvm(kind, *QUICK_START, *archived, *words, *options)


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
