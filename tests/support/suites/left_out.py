"""Where CI=true, a test that is skipped has failed: a build that leaves tests out says nothing.

Elsewhere a test whose tools or packages are missing is skipped with the reason.
"""

from collections.abc import Generator
from typing import Final, TypeVar

import pytest

from tests.support.processes import java_env

ALLOWED: Final = (
    # Of the machine, and not of what was installed on it.
    "no file system can be mounted here",
    "a file system of a few megabytes can only be mounted by root",
    "this kernel does not say what is in memory",
    "this file system keeps everything in memory",
)
"""How reasons begin for which a build may leave a test out."""

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def as_failure_if_required(report: Report) -> Report:
    """The report, which says that the test has failed if it was left out and may not be."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or not java_env.required():
        return report
    reason = reason_of(report)
    if not reason.startswith(ALLOWED):
        report.outcome = "failed"
        report.longrepr = f"nothing may be left out here (CI=true): {reason}"
    return report


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


class NothingLeftOut:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        return as_failure_if_required((yield))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return as_failure_if_required((yield))
