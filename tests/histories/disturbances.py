"""What happens to a broker and its connections in a run, by chance."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.histories.broker import SteppedClock
from tests.histories.links import Links, LostError, RefusedError
from tests.histories.producer import LATER, NEW, OLD, Producer
from tests.support.brokers.server_process import ServerProcess

KILL: Final = "kill -9"
STOP: Final = "SIGSTOP"
CUT: Final = "connections cut"
CLOCK: Final = "clock stepped"
TWIN: Final = "fenced by a twin"
EVERY: Final = (KILL, STOP, CUT, CLOCK, TWIN)
NOT_LETHAL: Final = (STOP, CUT, CLOCK, TWIN)
"""For a Kafka: README.md says what was seen of single nodes that were killed."""


class Pace(NamedTuple):
    """Seconds between one disturbance and the next: at least, at most."""

    least_s: float
    most_s: float


class Disturber:
    """Disturbs, one thing after another."""

    def __init__(
        self,
        server: ServerProcess,
        links: Links,
        ids: Sequence[str],
        clock: SteppedClock | None,
        chance: random.Random,
    ) -> None:
        """`ids` get twins; without a clock that can be stepped it stays as it is."""
        self.done: Counter[str] = Counter()
        self._server = server
        self._links = links
        self._ids = ids
        self._clock = clock
        self._chance = chance

    def disturb(self, kinds: Sequence[str]) -> None:
        """One of these, to its end: the broker runs again."""
        acts: dict[str, Callable[[], None]] = {
            KILL: self._kill,
            STOP: self._stop,
            CUT: self._cut,
            CLOCK: self._step_clock,
            TWIN: self._fence,
        }
        kind = self._chance.choice(kinds)
        acts[kind]()
        self.done[kind] += 1

    def _kill(self) -> None:
        self._server.kill()
        time.sleep(self._chance.choice((0, 0, 0.2)))
        self._server.start()

    def _stop(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)
        time.sleep(self._chance.choice((0.1, 0.5, 3)))
        os.kill(self._server.pid, signal.SIGCONT)

    def _cut(self) -> None:
        self._links.cut(self._chance, self._chance.choice((0.2, 0.5, 1)))

    def _step_clock(self) -> None:
        """To within two minutes of the right time: transactions time out, or do so late."""
        assert self._clock is not None
        self._clock.set_ahead(self._chance.randint(-120_000, 120_000))

    def _fence(self) -> None:
        """A new owner takes the epoch, and is never heard of again."""
        transactional_id = self._chance.choice(self._ids)
        flow = self._chance.choice((OLD, LATER, NEW))
        with contextlib.suppress(RefusedError, LostError):
            Producer(self._links, transactional_id, flow, timeout_ms=60_000).close()
