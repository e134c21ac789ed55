"""A JVM that answers JSON commands line by line (tests/java/LineServer.java)."""

from collections.abc import Sequence
from pathlib import Path

from tests import java_env
from tests.line_process import LineProcess

_LOG_SETTINGS = Path(__file__).parent / "java" / "log4j2.properties"


class JavaProcess(LineProcess):
    """One of our main classes on the class path of `kind`."""

    def __init__(self, main_class: str, kind: java_env.Kind, arguments: Sequence[str] = ()) -> None:
        super().__init__(
            [
                java_env.java(),
                "-Xmx512M",
                # The shortest start counts, not the best code after an hour.
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Dfile.encoding=UTF-8",
                f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
                "-cp",
                java_env.classpath(kind),
                main_class,
                *arguments,
            ]
        )
