"""Options of the long-running suites, whose short forms are the defaults that `make test` runs."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kohort")
    group.addoption(
        "--crash-runs", type=int, default=20, help="how often tests/crash kills the broker (20)"
    )
    group.addoption(
        "--fuzz-frames", type=int, default=200_000, help="how many frames tests/fuzz sends (200000)"
    )


@pytest.fixture(scope="session")
def crash_runs(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--crash-runs")
    return value


@pytest.fixture(scope="session")
def fuzz_frames(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--fuzz-frames")
    return value
