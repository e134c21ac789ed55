"""Kohort as its users run it: `python -m kohort serve` in a process of its own."""

import sys
from collections.abc import Mapping
from pathlib import Path

from kohort.protocol.codec import GAVE_UP, STRICT_OPTION
from tests.support.brokers.server_process import ServerProcess

_OVERRIDES = {
    # Long enough for a group's members to arrive together, short enough for a test.
    "group.initial.rebalance.delay.ms": "100",
    # Any free one: several brokers run side by side.
    "kohort.metrics.port": "0",
    "kohort.console.port": "-1",
}


class KohortServer(ServerProcess):
    """`overrides` are settings under Kafka's names, as `--override name=value` takes them."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        self.overrides = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            **_OVERRIDES,
            **(overrides or {}),
        }

    def command(self) -> list[str]:
        command = [sys.executable, "-X", STRICT_OPTION, "-m", "kohort", "serve"]
        for name, value in self.overrides.items():
            command += ["--override", f"{name}={value}"]
        return command

    def check_codecs(self) -> None:
        """Fail if a compiled codec has given up on what it should have read or written."""
        if self.log_file.exists():
            log = self.log_file.read_text(errors="replace")
            at = log.find(GAVE_UP)
            assert at < 0, log[max(at - 2_000, 0) : at + 1_000]

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.check_codecs()
