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
    group.addoption(
        "--pipeline-kills",
        type=int,
        default=1,
        help="how often tests/pipeline kills the driver, and the broker under it (1)",
    )
    group.addoption(
        "--what-if-traces",
        type=int,
        default=8,
        help="how many lives the advisor's predictions are held against (8)",
    )
    group.addoption(
        "--all-scenarios",
        action="store_true",
        help="run what is marked slow_groups or slow_jobs too: groups of all client versions and"
        " their timings, all that Spark jobs may meet",
    )


SLOW = ("slow_groups", "slow_jobs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `make interop` and `make pipeline` run and `make test` does not."""
    if config.getoption("--all-scenarios"):
        return
    left_out = [item for item in items if any(map(item.get_closest_marker, SLOW))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def crash_runs(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--crash-runs")
    return value


@pytest.fixture(scope="session")
def fuzz_frames(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--fuzz-frames")
    return value


@pytest.fixture(scope="session")
def pipeline_kills(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--pipeline-kills")
    return value


@pytest.fixture(scope="session")
def what_if_traces(request: pytest.FixtureRequest) -> int:
    value: int = request.config.getoption("--what-if-traces")
    return value
