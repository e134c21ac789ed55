"""What pytest-xdist has to know to run the suites in several processes, as `make test` does.

Tests that share something that is slow to start (two brokers, a Spark, a JVM) stay together, so
that it is started once; of the rest each module stays together. What takes longest begins first,
and what is over in a moment fills up the end, so that no process waits long for the others.

The marks of pytest-xdist 3.8 do nothing under pytest 9.2, whose node ids it does not reach. So
tests are dealt out by their ids alone, by a scheduler of our own; and a fixture that is slow to
start is refused where its test is not in the group that shares it.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

import pytest

FIRST: Final = (
    "tables",
    "twins",
    "integration",
    "consumer kafka",
    "kills",
    "consumer kohort",
    "bootstrap",
    "secured",
    "tests/interop/test_client_security.py",
    "tests/interop/test_consumer_spoiled.py",
    "tests/interop/test_join_reason.py",
)
"""The longest groups start first, so that no process ends long after the others."""

LAST: Final = ("tests/property/", "tests/unit/")
"""Suites of hundreds of modules that take a second or two each."""

GROUPS: Final[Mapping[str, str]] = {
    # It starts its own.
    r"tests/pipeline/test_land_kills\.py": "kills",
    r"tests/pipeline/": "tables",
    r"tests/crash/": "kills",
    # They hold a broker to times and to memory: one after another, at least.
    r"tests/integration/": "integration",
    r"tests/interop/consumer/.*\[kafka\b": "consumer kafka",
    r"tests/interop/consumer/.*\[kohort\b": "consumer kohort",
    r"tests/interop/test_(denials_tell_nothing|rights_of_kafka|same_answers_access)\.py": "secured",
    r"tests/interop/(foreign/test_secured_suites|test_same_decisions)\.py": "secured",
    r"tests/interop/test_same_(answers|batches|consumer|groups|share|transactions|users)": "twins",
    r"tests/interop/test_consumer_errors\.py": "twins",
    r"tests/interop/test_transactions_tool\.py": "twins",
    r"tests/interop/test_(cross_matrix|groups)\.py": "bootstrap",
    r"tests/interop/test_produce_consume\.py": "bootstrap",
}
"""By how a node id begins; the first that fits."""

SHARED: Final[Mapping[str, frozenset[str]]] = {
    "spark": frozenset({"tables"}),
    "twins": frozenset({"twins"}),
    "secured": frozenset({"secured"}),
}
"""Fixtures of a whole session that take many seconds to start, and the groups that may."""

_BEGINS: Final = tuple((re.compile(begins), group) for begins, group in GROUPS.items())


def group_of(nodeid: str) -> str:
    """The name of those that one process runs, which is the module where nothing else is said."""
    for begins, group in _BEGINS:
        if begins.match(nodeid):
            return group
    return nodeid.partition("::")[0]


def rank_of(nodeid: str) -> int:
    """The test with the lower rank begins first."""
    group = group_of(nodeid)
    if group in FIRST:
        return FIRST.index(group)
    return len(FIRST) + 1 + next(map(LAST.index, filter(nodeid.startswith, LAST)), -1)


class Order:
    """Registered in the processes that run tests; it has the last word on the order."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for fixture in SHARED.keys() & getattr(item, "fixturenames", ()):
                if group_of(item.nodeid) not in SHARED[fixture]:
                    message = f"{item.nodeid} takes `{fixture}`: name its module in {__file__}"
                    # pytest-xdist does not tell why a worker has ended.
                    os.write(2, f"ERROR: {message}\n".encode())
                    raise pytest.UsageError(message)
        items.sort(key=lambda item: rank_of(item.nodeid))


class Dealer:
    """Registered in the process that deals out the tests."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        """Imported here, for runs without pytest-xdist."""
        from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

        class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
            """Deals out groups in the order of collection. A test whose process dies has failed,
            and is not tried again.
            """

            def _split_scope(self, nodeid: str) -> str:
                return group_of(nodeid)

            def remove_node(self, node: object) -> str | None:
                workload = self.assigned_work.pop(node)
                left: list[tuple[str, str]] = [
                    (group, nodeid)
                    for group, unit in workload.items()
                    for nodeid, is_over in unit.items()
                    if not is_over
                ]
                if not left:
                    return None
                group, fatal = left[0]
                workload[group][fatal] = True
                for group in dict.fromkeys(group for group, _ in left[:0:-1]):
                    self.workqueue[group] = workload[group]
                    self.workqueue.move_to_end(group, last=False)
                for other in self.assigned_work:
                    self._reschedule(other)
                return fatal

        return GroupScheduling(config, log)


def prepare(config: pytest.Config) -> None:
    """For `pytest_configure`. xdist tells its workers by `loadgroup`, and not by its own `dist`."""
    if config.getoption("loadgroup", default=False):
        config.pluginmanager.register(Order())
    elif config.getoption("dist", default="no") == "loadgroup":
        config.pluginmanager.register(Dealer())
