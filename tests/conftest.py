"""What all suites share: their long forms, and a collector that leaves alone what never goes away.

`make test` runs each suite in its short form, `make test-long` everything in its long one. A test
that is in the long form alone is marked `long`; one that goes deeper there takes `long_form`, and
chooses by it how many steps, rounds or seeds it takes. Both forms assert the same.
"""

import gc
import signal
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from kohort.protocol.codec import STRICT_OPTION
from tests.support import virtual_time
from tests.support.suites import costs, hangs, left_out, side_by_side

# How long an example takes says how busy the machine is. A failure prints what repeats it, and the
# build machine tries new examples, too, where Hypothesis would go by CI=true and repeat the same.
for form, examples in (("short", 40), ("long", 100)):
    settings.register_profile(
        form,
        settings.get_profile("default"),
        max_examples=examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of something a suite does, which an option may set to any number."""

    option: str
    short: int
    long: int
    what: str


SCALES: Final = (
    Scale("--crash-runs", 4, 200, "how often tests/crash kills the broker"),
    Scale("--watch-kills", 2, 500, "how often tests/crash kills watchers of the history"),
    Scale("--group-kills", 2, 200, "how often tests/crash kills the broker of a consumer group"),
    Scale("--fuzz-frames", 15_000, 2_000_000, "how many frames tests/fuzz sends"),
    Scale("--pipeline-kills", 1, 20, "how often tests/pipeline kills the driver, and the broker"),
    Scale("--transaction-steps", 150, 10_000, "how far each walk through transactions goes"),
    Scale("--watched-rebalances", 0, 100_000, "how many a watcher explains; 0: some hundred"),
    Scale("--watched-minutes", 0, 20, "how long real consumers live beside a watcher, per Kafka"),
    Scale("--what-if-traces", 2, 120, "how many lives the advisor's predictions are held against"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kohort")
    group.addoption(
        "--long",
        action="store_true",
        dest="long",
        help="run the long forms: what is marked long too, and everything at its full depth",
    )
    for scale in SCALES:
        text = f"{scale.what} ({scale.short}; with --long {scale.long})"
        group.addoption(scale.option, type=int, help=text)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")
    virtual_time.is_debug = bool(config.getoption("--long"))
    side_by_side.prepare(config)
    costs.prepare(config)
    config.pluginmanager.register(left_out.NothingLeftOut())
    config.pluginmanager.register(hangs.Watchdog())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell has it for what it starts in the background; commands that tests interrupt
        # would inherit it, and go on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whatever a broker sends, in this process or in one that is started, is what was compiled for.
    sys._xoptions[STRICT_OPTION] = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the collector, which would look at all that is collected again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked long, unless the long forms are asked for."""
    for item in items:
        if " at 0x" in item.nodeid:
            # It is another in each process, and those that share a run must agree.
            raise pytest.UsageError(f"{item.nodeid}: give the parameter an id")
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    """Takes the half a million objects that collection made out of the collector's sight.

    They live until the end. To look at them again took each full collection 0.2 to 0.4 s, and
    tests that must know what a client library has dropped collect after every test.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def old_objects_out_of_sight() -> None:
    """Freeze as after collection, because brokers that end in this process unfreeze all objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def long_form(request: pytest.FixtureRequest) -> bool:
    """Whether the long forms run: more steps, rounds and seeds, and the same assertions."""
    value: bool = request.config.getoption("--long")
    return value


def scale_of(request: pytest.FixtureRequest, option: str) -> int:
    given: int | None = request.config.getoption(option)
    if given is not None:
        return given
    (scale,) = (scale for scale in SCALES if scale.option == option)
    return scale.long if request.config.getoption("--long") else scale.short


@pytest.fixture(scope="session")
def crash_runs(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--crash-runs")


@pytest.fixture(scope="session")
def watch_kills(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--watch-kills")


@pytest.fixture(scope="session")
def group_kills(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--group-kills")


@pytest.fixture(scope="session")
def fuzz_frames(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--fuzz-frames")


@pytest.fixture(scope="session")
def pipeline_kills(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--pipeline-kills")


@pytest.fixture(scope="session")
def transaction_steps(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--transaction-steps")


@pytest.fixture(scope="session")
def what_if_traces(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--what-if-traces")


@pytest.fixture(scope="session")
def watched_minutes(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--watched-minutes")


@pytest.fixture(scope="session")
def watched_rebalances(request: pytest.FixtureRequest) -> int:
    return scale_of(request, "--watched-rebalances")
