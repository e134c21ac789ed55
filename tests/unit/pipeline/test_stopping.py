"""How jobs end on a signal, with and without a JVM that goes with them."""

import logging
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kohort.pipeline.continuous import stop_on_signals
from kohort.pipeline.errors import DataLossError


def session(*, is_stopped: bool) -> SparkSession:
    """The part of a session that is asked whether its JVM goes on."""
    context = SimpleNamespace(isStopped=lambda: is_stopped)
    jsc: Any = SimpleNamespace(sc=lambda: context)
    return cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jsc)))


def test_a_signal_is_told_and_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(session(is_stopped=False)) as stopping:
        assert not stopping.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before


def stopped_and_failing(spark: SparkSession) -> None:
    with stop_on_signals(spark) as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.wait(10)
        raise DataLossError("records are gone")


def test_what_fails_after_a_signal_that_stopped_spark_too_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    level = logging.root.manager.disable
    stopped_and_failing(session(is_stopped=True))
    assert "the next run repeats what was not finished" in capsys.readouterr().err
    assert logging.root.manager.disable == level


def test_what_fails_after_a_signal_while_spark_goes_on_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kohort.pipeline.continuous._END_TIMEOUT_S", 0.1)
    with pytest.raises(DataLossError):
        stopped_and_failing(session(is_stopped=False))


def test_what_fails_without_a_signal_is_raised() -> None:
    with pytest.raises(DataLossError), stop_on_signals(session(is_stopped=True)):
        raise DataLossError("records are gone")
