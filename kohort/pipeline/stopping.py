"""How jobs that go on for ever are told to end."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pyspark.sql import SparkSession

from kohort.insight.console import announce
from kohort.pipeline import jvm

_END_TIMEOUT_S: Final = 5.0
"""Timeout for a JVM that was told to end to show that it does."""


@contextmanager
def stop_on_signals(spark: SparkSession) -> Iterator[threading.Event]:
    """SIGTERM and SIGINT set the event, instead of ending the process amid a batch.

    A stop of a whole group of processes, as by systemd and `timeout`, stops Spark's JVM as well,
    and nothing can be ended in order any more. A failure in here because of that is no failure of
    the job: the next run does again what was not finished.
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
        announce("Spark was stopped as well; the next run does again what was not finished")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_ending(spark: SparkSession) -> bool:
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    # py4j logs a stack trace for each call that a JVM does not answer any more.
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
