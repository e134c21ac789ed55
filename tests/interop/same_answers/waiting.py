"""Scripts that mostly wait: they run all at once, and say when answers have to come.

Times are compared as bands, because a busy machine makes both brokers late: an answer may come a
little earlier than it should by our clock, and `SLACK_S` later. A script that fails is run once
more, by which time most others are over.
"""

import select
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from socket import socket
from typing import Final

import pytest

from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.interop.same_answers.differences import Later
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Answers, Pair, Pending, Twins

EARLY_S: Final = 0.3
SLACK_S: Final = 0.9
GIVE_UP_S: Final = 10

Script = Callable[[Pair], None]


class Stopwatch:
    """Notes when the answers come that are watched."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._started = time.monotonic()
        self._open: dict[socket, tuple[Pending, int]] = {}
        self._arrived: dict[tuple[Pending, int], float] = {}

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def watch(self, pending: Pending) -> Pending:
        """From now on, note when each answers this."""
        for index, one in enumerate(pending.line.sockets()):
            self._open[one] = (pending, index)
        return pending

    def until(self, at_s: float) -> None:
        """Wait until that long after the start."""
        while (left_s := at_s - self.elapsed_s) > 0:
            self._look(left_s)

    def _look(self, for_s: float) -> None:
        if not self._open:
            time.sleep(for_s)
            return
        for one in select.select(list(self._open), [], [], for_s)[0]:
            self._arrived[self._open.pop(one)] = self.elapsed_s

    def answers(self, pending: Pending, at_s: float, *, later: Later | None = None) -> Answers:
        """Compare, and check that both answered then; or ours then and Kafka's `later`."""
        keys = [(pending, 0), (pending, 1)]
        theirs_s = at_s if later is None else later.kafka_s
        give_up_s = max(at_s, theirs_s, self.elapsed_s) + GIVE_UP_S
        while any(key not in self._arrived for key in keys) and self.elapsed_s < give_up_s:
            self._look(0.2)
        name = type(pending.request).__name__
        self._check(name, [self._arrived.get(key) for key in keys], (theirs_s, at_s))
        return pending.answers()

    def state(self, group: Group, state: str, at_s: float, *, later: Later | None = None) -> None:
        """Check that both groups get into that state then."""
        theirs_s = at_s if later is None else later.kafka_s
        reached: list[float | None] = [None, None]
        request = DescribeGroupsRequest(groups=[group.id])
        while None in reached and self.elapsed_s < max(theirs_s, at_s) + GIVE_UP_S:
            for index, answer in enumerate(self.pair.peek(request, 5)):
                if reached[index] is None and answer.groups[0].group_state == state:
                    reached[index] = self.elapsed_s
            self._look(0.02)
        self._check(state, reached, (theirs_s, at_s))

    def _check(
        self, what: str, arrived_s: list[float | None], wanted_s: tuple[float, float]
    ) -> None:
        for side, at_s, want_s in zip(self.pair.sides, arrived_s, wanted_s, strict=True):
            if side.name == "kohort" and self.pair.are_both_kafka:
                want_s = wanted_s[0]  # noqa: PLW2901 - it is a Kafka, too.
            if at_s is None or not want_s - EARLY_S <= at_s <= want_s + SLACK_S:
                when = "not" if at_s is None else f"at {at_s:.2f} s"
                self.pair.report(what, f"came {when} at {side.name}, not at {want_s} s")


class Scripts:
    """Scripts by name; `@scripts` adds one."""

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}

    def __call__(self, script: Script) -> Script:
        name = script.__name__.replace("_", " ")
        assert name not in self._scripts
        self._scripts[name] = script
        return script

    def add(self, name: str, script: Script) -> None:
        """Under a name of its own."""
        assert name not in self._scripts
        self._scripts[name] = script

    @property
    def names(self) -> list[str]:
        return list(self._scripts)

    @contextmanager
    def running(
        self, request: pytest.FixtureRequest, twins: Twins
    ) -> Iterator[dict[str, Future[str]]]:
        """All that the session has tests for in the module of `request`, at once.

        Each future holds what was wrong at the second try, if anything.
        """
        names = [
            str(item.callspec.params["name"])
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.path == request.path
        ]
        with ThreadPoolExecutor(max_workers=max(len(names), 1)) as pool:
            yield {name: pool.submit(self._run, name, twins) for name in names}

    def _run(self, name: str, twins: Twins) -> str:
        wrong = self._try(name, twins)
        if wrong:
            print(f"once more, as it may have been late: {name}\n{wrong}")
            wrong = self._try(name, twins)
        return wrong

    def _try(self, name: str, twins: Twins) -> str:
        wrong: list[str] = []
        with Pair(twins, lambda what, text: wrong.append(f"{what}: {text}")) as pair:
            try:
                self._scripts[name](pair)
            except Exception:  # noqa: BLE001 - told to the test that waits for it.
                wrong.append(traceback.format_exc())
        return "\n".join(wrong)
