"""Scripts that mostly wait: they run all at once, and say when answers have to come.

Times are compared as bands: an answer may come a little earlier than it should by our clock, and
`SLACK_S` later. A busy machine makes both brokers, and us, late: by how much is told by a `Witness`
who asks both all the time for what each answers at once, and the bands grow by that. A script that
fails is run once more, by which time most others are over.
"""

import select
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from socket import socket
from typing import ClassVar, Final, Self

import pytest

from kohort.protocol.messages.groups import DescribeGroupsRequest
from tests.interop.same_answers.deliberate import Later
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Answers, Pair, Pending, Twins
from tests.support.network.wire import RawClient

EARLY_S: Final = 0.3
SLACK_S: Final = 0.9
GIVE_UP_S: Final = 10

ASKED_EVERY_S: Final = 0.05
LATE_TIMES: Final = 3
"""An answer may be as late as the latest of that many that should have come at once, together: of
the request, of what it waits for, and of our noticing it."""

Script = Callable[[Pair], None]


class Witness:
    """Knows how late on this machine comes what should come at once."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = tuple(ports)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(port,), daemon=True) for port in self._ports
        ]
        self._seen: list[tuple[float, float]] = []
        """When each answer came, and how long it took, the time between two questions included."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, port: int) -> None:
        """Asks on, whatever scripts do to the broker."""
        while not self._stop.is_set():
            with suppress(OSError), RawClient(port) as client:
                last_s = time.monotonic()
                while not self._stop.wait(ASKED_EVERY_S) and client.is_answered():
                    last_s, before_s = time.monotonic(), last_s
                    self._seen.append((last_s, last_s - before_s - ASKED_EVERY_S))
            self._stop.wait(ASKED_EVERY_S)

    def late_s(self, since_s: float) -> float:
        """The latest since then, by the monotonic clock."""
        return max((took_s for at_s, took_s in self._seen if at_s >= since_s), default=0.0)


class Stopwatch:
    """Notes when the answers come that are watched."""

    witness: ClassVar[Witness | None] = None
    """While scripts run at once."""

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
        late_s = 0.0 if self.witness is None else LATE_TIMES * self.witness.late_s(self._started)
        for side, at_s, want_s in zip(self.pair.sides, arrived_s, wanted_s, strict=True):
            if side.name == "kohort" and self.pair.are_both_kafka:
                want_s = wanted_s[0]  # noqa: PLW2901 - it is a Kafka, too.
            early_s, slack_s = EARLY_S + late_s, SLACK_S + late_s
            if at_s is None or not want_s - early_s <= at_s <= want_s + slack_s:
                when = "not" if at_s is None else f"at {at_s:.2f} s"
                told = f"came {when} at {side.name}, not at {want_s} s, give or take {late_s:.2f} s"
                self.pair.report(what, told)


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
        with (
            Witness(twin.port for twin in twins) as witness,
            ThreadPoolExecutor(max_workers=max(len(names), 1)) as pool,
        ):
            Stopwatch.witness = witness
            try:
                yield {name: pool.submit(self._run, name, twins) for name in names}
            finally:
                pool.shutdown(cancel_futures=True)
                Stopwatch.witness = None

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
