"""The broker as a process of its own.

Reads the configuration, logs the ignored settings, and runs the broker until SIGTERM or SIGINT.
SIGHUP reloads certificates, SIGUSR1 writes the stacks of all threads to the standard error stream.
Exit codes: 0 after a clean stop, 1 if the broker could not start, 2 for an invalid configuration.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop

from kohort.broker.app import Broker, StartError
from kohort.broker.config import ConfigError, LoadedConfig, load

logger = logging.getLogger(__name__)

START_FAILED: Final = 1
BAD_CONFIG: Final = 2

TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


def run_daemon(file: Path | None, overrides: Sequence[str]) -> int:
    """Run a broker with these settings until SIGTERM or SIGINT; return the exit code."""
    try:
        loaded = load(file=file, overrides=overrides, environment=os.environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"kohort: {problem}", file=sys.stderr)
        return BAD_CONFIG
    # The signal's default action would kill the broker without a clean stop.
    faulthandler.register(signal.SIGUSR1)
    _begin_logging(loaded)
    _log_warnings(loaded)
    try:
        uvloop.run(Broker(loaded).run_until_signalled())
    except StartError as error:
        logger.critical("%s", error)
        return START_FAILED
    return 0


def _begin_logging(loaded: LoadedConfig) -> None:
    logging.basicConfig(level=loaded.config.kohort_log_level, format=TEXT, stream=sys.stderr)
    if loaded.config.kohort_log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())


def _log_warnings(loaded: LoadedConfig) -> None:
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    if loaded.ignored:
        names = ", ".join(f"{given.name} ({given.origin})" for given in loaded.ignored)
        logger.warning("Kafka settings without effect here: %s", names)


class JsonFormatter(logging.Formatter):
    """Formats records as one JSON object per line, with the time in UTC (ISO 8601)."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
