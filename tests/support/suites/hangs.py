"""A test that hangs ends its process in the end, and with it says where every thread was.

pytest-timeout interrupts a test by a signal, once: in vain if the main thread is in C and does not
come out, or if the interruption ends a task that is not awaited; and it does not watch the
teardown of a test that has failed. A while later the process is ended from outside of Python. Under
pytest-xdist the test is then one that its process has not survived, and the others go on.
"""

import faulthandler
import os
from collections.abc import Generator
from typing import Protocol

import pytest

GRACE_S = 60


class Settings(Protocol):
    """What pytest-timeout tells of a test."""

    timeout: float
    """In seconds."""


class Watchdog:
    """Registered in each process that runs tests, before output is captured."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._error_output = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_timeout_set_timer(self, settings: Settings) -> Generator[None, object, object]:
        """Called for each test that has a timeout, before its setup."""
        faulthandler.dump_traceback_later(
            settings.timeout + self._grace_s, exit=True, file=self._error_output
        )
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """To the end of the teardown."""
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_enter_pdb(self) -> None:
        """A test that is being looked at may take its time."""
        faulthandler.cancel_dump_traceback_later()
