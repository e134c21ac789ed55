"""The pytest plugin: fixtures with a broker; reports on the broker's groups if a test fails.

pytest loads this wherever Kohort is installed, so it imports nothing until a fixture is used, and
does not affect tests without one.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

kafka_settings: Final = pytest.mark.kafka_settings
"""Marker with settings of the test's broker: ``@kafka_settings({"num.partitions": 3})``; with
``on_disk=True``, its data are in files."""


if TYPE_CHECKING:
    from kohort.testing.kafka import Kafka
    from kohort.testing.virtual_kafka import VirtualKafka

FIXTURES = ("kafka", "kafka_module", "kafka_session", "virtual_kafka")
MARKER = "kafka_settings"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _import_as_it_is(pluginmanager)
    parser.getgroup("kohort").addoption(
        "--kafka-seed",
        type=int,
        metavar="SEED",
        help="reproduce the run of virtual_kafka with this seed, which a failed test reports",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(settings, on_disk=False): settings of the test's broker",
    )


def _import_as_it_is(pluginmanager: pytest.PytestPluginManager) -> None:
    """Turn off pytest's assertion rewriting for Kohort's modules.

    pytest rewrites the assertions of all modules of a package that has a plugin. That takes half
    the time of a run without its cache; and if two threads import modules at once, CPython before
    3.11.8 may raise SystemError (gh-106905).
    """
    hook = getattr(pluginmanager, "rewrite_hook", None)
    getattr(hook, "_must_rewrite", set()).discard("kohort")


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker for one test, in memory unless the marker `kafka_settings` says otherwise."""
    yield from _running(request)


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker for the tests of a module, with the settings of its `pytestmark`."""
    yield from _running(request)


@pytest.fixture(scope="session")
def kafka_session_settings() -> dict[str, object]:
    """Settings of `kafka_session`; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(
    request: pytest.FixtureRequest, kafka_session_settings: dict[str, object]
) -> Iterator[Kafka]:
    """A broker for all tests of the run, or of a worker with pytest-xdist."""
    yield from _running(request, kafka_session_settings)


@pytest.fixture
def virtual_kafka(request: pytest.FixtureRequest) -> Iterator[VirtualKafka]:
    """A broker on virtual time; a test is a coroutine on the broker's loop, or calls `run`."""
    from kohort.testing.virtual_kafka import VirtualKafka  # noqa: PLC0415 - see the module.

    seed = request.config.getoption("--kafka-seed")
    if seed is None:
        # Not from `random`, which other plugins seed identically for each test.
        seed = random.SystemRandom().getrandbits(32)
    given, _ = settings_of(request.node)
    running = VirtualKafka(given, seed=seed)
    yield running
    running.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run coroutine tests that use `virtual_kafka` on its loop, before other plugins can."""
    running: VirtualKafka | None = pyfuncitem.funcargs.get("virtual_kafka")  # type: ignore[assignment]
    given = pyfuncitem.obj
    test = inspect.unwrap(given)
    if running is None or not inspect.iscoroutinefunction(test):
        return (yield)
    backend: Any = pyfuncitem.funcargs.get("anyio_backend", "asyncio")
    if "asyncio" not in (backend, backend[0]):
        pytest.fail(
            f"virtual_kafka is an asyncio loop, and anyio_backend is {backend!r}: add a fixture"
            ' anyio_backend that returns "asyncio"',
            pytrace=False,
        )
    wanted = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}

    def run(**_: object) -> None:
        running.run(test(**arguments))

    # Replace the coroutine function, which other plugins, such as anyio's, would run themselves.
    pyfuncitem.obj = run
    try:
        return (yield)
    finally:
        pyfuncitem.obj = given


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
) -> Generator[None, object, object]:
    """Reject coroutine fixtures that use `virtual_kafka`: they would run on another event loop."""
    function = inspect.unwrap(fixturedef.func)
    if "virtual_kafka" in fixturedef.argnames and (
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    ):
        pytest.fail(
            f"fixture {fixturedef.argname!r} is a coroutine, so it runs on another event loop than"
            " virtual_kafka: make it an async context manager, and enter it in the test",
            pytrace=False,
        )
    return (yield)


def _running(
    request: pytest.FixtureRequest, settings: dict[str, object] | None = None
) -> Iterator[Kafka]:
    from kohort.testing.kafka import Kafka  # noqa: PLC0415 - see the module.

    given, on_disk = settings_of(request.node)
    directory = None
    if on_disk:
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        directory = factory.mktemp("kafka")
    with Kafka({**(settings or {}), **given}, directory=directory) as running:
        yield running


def settings_of(node: Any) -> tuple[dict[str, object], bool]:  # noqa: ANN401 - an item, a module.
    """Return the settings in a test's markers, and whether the broker's data are on disk."""
    given: dict[str, object] = {}
    on_disk = False
    for marker in reversed(list(node.iter_markers(MARKER))):
        for settings in marker.args:
            given.update(settings)
        on_disk = marker.kwargs.get("on_disk", on_disk)
    return given, on_disk


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the groups' rebalances, with reasons, to the report of a failed test."""
    report = yield
    if call.when == "call" and report.failed:
        for name in FIXTURES:
            running: Any = getattr(item, "funcargs", {}).get(name)
            if hasattr(running, "why"):
                _report(report, name, running)
            if hasattr(running, "seed"):
                text = f"--kafka-seed={running.seed} reproduces it"
                report.sections.append((f"seed of {name}", text))
    return report


def _report(report: pytest.TestReport, name: str, running: Any) -> None:  # noqa: ANN401
    try:
        groups: dict[str, list[str]] = running.why()
    except Exception as error:  # noqa: BLE001 - the test has already failed, and its failure matters more.
        groups = {"": [f"the broker did not answer: {error!r}"]}
    lines = [line for reasons in groups.values() for line in reasons]
    if lines:
        report.sections.append((f"groups of {name}", "\n".join(lines)))
