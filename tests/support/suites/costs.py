"""Print what each suite took, by the clock and in processor time, at the end of a run of several.

Processor time is that of the processes that run tests and of those that they have waited for, as
they do for brokers. Spark's JVM lives as long as its test process, so the pipeline shows less.
"""

import os
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Final

import pytest

_PROCESSOR_S: Final = "processor_s"


def processor_s() -> float:
    """Seconds that this process has used until now, and those that it has waited for."""
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return sum(used.ru_utime + used.ru_stime for used in (mine, of_children))


class Meter:
    """Registered where tests run: each report of a teardown tells what its test has used."""

    def __init__(self) -> None:
        self._begun_s = processor_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Since the teardown before: what is between two tests belongs to the second."""
        yield
        now_s = processor_s()
        item.user_properties.append((_PROCESSOR_S, round(now_s - self._begun_s, 3)))
        self._begun_s = now_s


class Bill:
    """Registered where the run is reported."""

    def __init__(self) -> None:
        self._tests: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        """By suite."""
        self._processor_s: defaultdict[str, float] = defaultdict(float)
        """By suite."""
        self._begun_s = time.monotonic()
        self._processes: defaultdict[str, float] = defaultdict(float)
        """Seconds in tests, by the process."""
        self._ended_s: dict[str, float] = {}
        """When the last test of each process ended, since the run began."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of each test, whichever process ran it."""
        self._seconds[suite_of(report.nodeid)] += report.duration
        process = str(getattr(report, "worker_id", "this process"))
        self._processes[process] += report.duration
        self._ended_s[process] = time.monotonic() - self._begun_s
        if report.when == "teardown":
            suite = suite_of(report.nodeid)
            self._tests[suite] += 1
            used = (value for name, value in report.user_properties if name == _PROCESSOR_S)
            self._processor_s[suite] += sum(float(str(value)) for value in used)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Nothing for one suite alone, as it is run at work."""
        if len(self._tests) > 1:
            terminalreporter.section("suites: tests, seconds of all, of the processor")
            for seconds, suite in sorted(
                ((used, suite) for suite, used in self._seconds.items()), reverse=True
            ):
                terminalreporter.write_line(
                    f"{suite:12} {self._tests[suite]:6} {seconds:7.0f} "
                    f"{self._processor_s[suite]:7.0f}"
                )
            terminalreporter.section("processes: seconds in tests, and until when")
            for process, seconds in sorted(self._processes.items()):
                ended_s = self._ended_s[process]
                terminalreporter.write_line(f"{process:12} {seconds:14.0f} {ended_s:7.0f}")


def suite_of(nodeid: str) -> str:
    """``unit`` of ``tests/unit/...``."""
    return nodeid.split("/")[1]


def prepare(config: pytest.Config) -> None:
    """For `pytest_configure`."""
    config.pluginmanager.register(Meter())
    if "PYTEST_XDIST_WORKER" not in os.environ and not config.getoption("--long"):
        config.pluginmanager.register(Bill())
