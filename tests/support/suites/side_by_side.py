"""What pytest-xdist has to know to run the suites in several processes, as `make test` does.

Tests that share something that is slow to start (two brokers, a Spark, a JVM) stay together, so
that it is started once; of the rest each module stays together. What takes longest begins first,
and what is over in a moment fills up the end, so that no process waits long for the others.
"""

from collections.abc import Mapping
from typing import Final

import pytest

FIRST: Final = (
    "tables",
    "lake",
    "twins",
    "consumer kafka",
    "kills",
    "integration",
    "consumer kohort",
    "bootstrap",
    "tests/interop/test_client_security.py",
    "tests/interop/consumer/test_outages.py",
    "tests/interop/test_consumer_refused.py",
    "tests/interop/test_consumer_outage.py",
    "tests/interop/test_consumer_spoiled.py",
)
"""Groups by how long they take; they decide when the run is over. Then comes what is not named."""

LAST: Final = ("property", "unit")
"""Suites of hundreds of modules that take a second or two each."""

OF_FIXTURES: Final[Mapping[str, str]] = {"twins": "twins", "bootstrap": "bootstrap"}
"""Groups by the fixture of the whole session that is slow to start."""

OF_MODULES: Final[Mapping[str, str]] = {
    # The session's Spark twice, because one process would be at it longer than all others.
    "test_connector": "lake",
    "test_ingest": "lake",
    "test_lake": "lake",
    "test_land": "lake",
    # They start their own.
    "test_land_kills": "kills",
}
"""Groups by the name of the module."""

OF_SUITES: Final[Mapping[str, str]] = {
    "pipeline": "tables",
    "crash": "kills",
    "histories": "kills",
    # They hold a broker to times and to memory: one after another, at least.
    "integration": "integration",
}


def place_of(item: pytest.Item) -> tuple[str, ...]:
    """The suite, and the way to the module within it."""
    return item.path.relative_to(item.config.rootpath / "tests").parts


def group_of(item: pytest.Item) -> str:
    """The name of those that one process runs."""
    suite, *inner = place_of(item)
    if item.path.stem in OF_MODULES:
        return OF_MODULES[item.path.stem]
    if suite in OF_SUITES:
        return OF_SUITES[suite]
    if suite == "interop" and isinstance(item, pytest.Function):
        if inner[0] == "consumer" and "any_broker" in item.fixturenames:
            return f"consumer {item.callspec.params['any_broker']}"
        for fixture, group in OF_FIXTURES.items():
            if fixture in item.fixturenames:
                return group
    return str(item.path.relative_to(item.config.rootpath))


def rank_of(item: pytest.Item) -> int:
    """Of two items, the one with the lower rank begins first."""
    group, suite = group_of(item), place_of(item)[0]
    if group in FIRST:
        return FIRST.index(group)
    return len(FIRST) + (1 + LAST.index(suite) if suite in LAST else 0)


class Groups:
    """Registered where pytest-xdist deals out tests by their groups."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before pytest-xdist looks at the marks."""
        for item in items:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


class Order:
    """As Groups; it has the last word on the order."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=rank_of)


def prepare(config: pytest.Config) -> None:
    """For `pytest_configure`. xdist tells its workers by that option, and not by its own `dist`."""
    if config.getoption("loadgroup", default=False):
        config.pluginmanager.register(Groups())
        config.pluginmanager.register(Order())
