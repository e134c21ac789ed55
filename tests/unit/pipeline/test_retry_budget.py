"""Which errors are worth another try, and for how long."""

import threading

from kohort.insight.errors import ReportedError
from kohort.pipeline.continuous import RetryBudget
from kohort.pipeline.errors import UnavailableError


def test_only_what_may_come_back_is_waited_for() -> None:
    budget = RetryBudget(600, threading.Event())
    assert budget.allows(UnavailableError("no broker"))
    assert not budget.allows(ReportedError("no such topic"))


def test_without_patience_the_first_error_is_the_last() -> None:
    assert not RetryBudget(0, threading.Event()).allows(UnavailableError("no broker"))


def test_a_job_that_is_told_to_stop_does_not_wait_for_the_next_try() -> None:
    stopping = threading.Event()
    stopping.set()
    # A second at least, if it did not look; the test's own time limit is what this is held to.
    for _ in range(1_000):
        RetryBudget(600, stopping).pause()
