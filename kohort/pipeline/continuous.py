"""Continuous jobs: how they stop on signals, and how long they retry when brokers do not answer."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pyspark.sql import SparkSession

from kohort.insight.errors import ReportedError
from kohort.insight.output import announce
from kohort.pipeline import jvm
from kohort.pipeline.errors import UnavailableError

_END_TIMEOUT_S: Final = 5.0
"""How long to wait, after an error, for a sign that the JVM is ending."""
_PAUSE_S_MAX: Final = 30.0


@contextmanager
def stop_on_signals(spark: SparkSession) -> Iterator[threading.Event]:
    """Let SIGTERM and SIGINT set the event, so that the process does not end during a batch.

    systemd and `timeout` signal the whole process group, including Spark's JVM, so that the batch
    cannot be completed. The resulting error is no failure of the job, because the next run repeats
    the batch.
    """
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    except Exception:
        if not (stopping.is_set() and _is_ending(spark)):
            raise
        announce("Spark was stopped too; the next run repeats what was not finished")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ending(spark: SparkSession) -> bool:
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    # py4j logs a stack trace for each call that the JVM no longer answers.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        while not jvm.is_over(spark):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
    finally:
        logging.disable(before)
    return True


class RetryBudget:
    """Allows retries until `limit_s` after the last success, and pauses before each. With `limit_s`
    0, there are no retries; the event `stopping` ends a pause early.
    """

    def __init__(self, limit_s: float, stopping: threading.Event) -> None:
        self._limit_s = limit_s
        self._stopping = stopping
        self._last_success_s = time.monotonic()

    def renew(self) -> None:
        self._last_success_s = time.monotonic()

    def allows(self, error: ReportedError) -> bool:
        """Whether to retry after this error; does not wait."""
        return isinstance(error, UnavailableError) and self._failing_s() < self._limit_s

    def pause(self) -> None:
        """Wait before the next try; the wait grows with the time since the last success."""
        self._stopping.wait(min(_PAUSE_S_MAX, 1 + self._failing_s() / 2))

    def _failing_s(self) -> float:
        return time.monotonic() - self._last_success_s
