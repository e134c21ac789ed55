"""The scheduler of a run in several processes, in the place of pytest-xdist's own.

Its groups go by node ids, as `side_by_side` says. And where one of the processes dies, the test
that it was at has failed and is not tried again, and what it had before it goes to another.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import pytest
from xdist.report import report_collection_diff
from xdist.workermanage import parse_tx_spec_config


class Process(Protocol):
    """One that runs tests: what a scheduler wants of xdist's WorkerController."""

    gateway: Any
    """Its `id` is ``gw0`` and so on."""
    shutting_down: bool

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        """Tests to run after those that it has, by their places in what it has collected."""

    def shutdown(self) -> None:
        """Lets it run what it has, and end."""


class GroupScheduling:
    """Gives one group after another, in the order of collection, to the next free worker.

    A process begins a test when it knows the next one, for the fixtures that both take, or that
    there is none.
    """

    def __init__(self, config: pytest.Config, group_of: Callable[[str], str]) -> None:
        """`group_of` tells the group of a node id."""
        self._config = config
        self._group_of = group_of
        self._processes: Final[int] = len(parse_tx_spec_config(config))
        self._collected: dict[Process, list[str]] = {}
        self._ids: list[str] = []
        self._waiting: deque[deque[int]] = deque()
        """Groups that no worker has yet."""
        self._dealt: dict[Process, deque[int]] = {}
        """What each process has; it is at the first."""

    @property
    def nodes(self) -> list[Process]:
        """The processes that there are."""
        return list(self._dealt)

    @property
    def collection_is_completed(self) -> bool:
        """Whether so many have collected as there were to begin with."""
        return len(self._collected) >= self._processes

    @property
    def tests_finished(self) -> bool:
        """Whether all that is left is at most the last test of each."""
        return (
            self.collection_is_completed
            and not self._waiting
            and all(len(tests) < 2 for tests in self._dealt.values())
        )

    @property
    def has_pending(self) -> bool:
        """Whether there are tests that have not ended."""
        return bool(self._waiting) or any(self._dealt.values())

    def add_node(self, node: Process) -> None:
        """A process that will collect tests."""
        self._dealt[node] = deque()

    def add_node_collection(self, node: Process, collection: Sequence[str]) -> None:
        """What a process has collected."""
        self._collected[node] = list(collection)

    def schedule(self) -> None:
        """Called when all have collected, and again when one more has that replaces another."""
        if not self._ids:
            first, *others = self._collected
            self._ids = self._collected[first]
            if [other for other in others if not self._same(first, other)]:
                return
            groups: dict[str, deque[int]] = {}
            for index, nodeid in enumerate(self._ids):
                groups.setdefault(self._group_of(nodeid), deque()).append(index)
            self._waiting.extend(groups.values())
        for node in self._dealt:
            self._deal(node)

    def mark_test_complete(self, node: Process, item_index: int, duration: float = 0) -> None:
        """A test has ended, whatever came of it."""
        del duration
        self._dealt[node].remove(item_index)
        self._deal(node)

    def remove_node(self, node: Process) -> str | None:
        """A process has ended; the test that it has not survived, if it was at one."""
        left = self._dealt.pop(node)
        if not left:
            return None
        fatal = left.popleft()
        if left:
            self._waiting.appendleft(left)
        for other in self._dealt:
            self._deal(other)
        return self._ids[fatal]

    def _deal(self, node: Process) -> None:
        if node.shutting_down or node not in self._collected:
            return
        tests = self._dealt[node]
        while self._waiting and len(tests) < 2:
            group = self._waiting.popleft()
            tests.extend(group)
            node.send_runtest_some(list(group))
        if not self._waiting:
            node.shutdown()

    def _same(self, first: Process, other: Process) -> bool:
        """Reports it if not."""
        difference = report_collection_diff(
            self._ids, self._collected[other], first.gateway.id, other.gateway.id
        )
        if difference:
            report = pytest.CollectReport(other.gateway.id, "failed", difference, [])
            self._config.hook.pytest_collectreport(report=report)
        return not difference
