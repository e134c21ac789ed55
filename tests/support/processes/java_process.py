"""A JVM that answers JSON commands line by line (tests/java/LineServer.java)."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import java_env
from tests.support.processes.line_process import LineProcess


class JavaProcess(LineProcess):
    """One of our main classes on the class path of `kind`."""

    def __init__(
        self,
        main_class: str,
        kind: java_env.Kind,
        arguments: Sequence[str] = (),
        *,
        log: Path | None = None,
    ) -> None:
        super().__init__(
            [
                *java_env.quick_jvm(kind, "-Xmx512M", "-Dfile.encoding=UTF-8"),
                main_class,
                *arguments,
            ],
            log=log,
        )
