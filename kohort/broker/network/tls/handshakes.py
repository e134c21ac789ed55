"""TLS handshakes of all connections: their steps are computed on threads, and addresses take turns.

A step is a quarter of a millisecond with a key on P-256, and several with an RSA key of 4,096 bits;
OpenSSL computes it without the interpreter, so the loop goes on meanwhile. Few are begun at a time:
the others wait where each address has its turn.
"""

import asyncio
import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.network.tls.pump import RECORD_BYTES, TlsError, TlsPump
from kohort.broker.runtime.lower_threads import Threads

THREADS: Final = 2


class Outcome(NamedTuple):
    """What a step has come to."""

    used_bytes: int
    """How much of the received data it has taken."""
    failure: str = ""
    """Why the handshake has failed; empty if it has not."""


class Handshake(Hashable, Protocol):
    """A connection whose handshake has a step to do."""

    @property
    def owner(self) -> str:
        """Owner of the address of its client."""
        ...

    def begin_work(self) -> Callable[[], Outcome] | None:
        """Return what a thread has to do, None if there is no need any more."""
        ...

    def end_work(self, outcome: Outcome | BaseException) -> None:
        """Go on, by what the step has come to or has raised. Must not raise."""
        ...


class Handshakes:
    """A queue of handshake steps, in which addresses take turns."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._waiting: FairQueue[str, Handshake] = FairQueue(sys.maxsize)
        """Waiting handshakes by owner of the address; a connection is there once, so their number
        is the bound."""
        self._at_work = 0
        self._is_closed = False

    def soon(self, one: Handshake) -> None:
        """Have a step done; call this only once before it is begun."""
        self._waiting.add(one.owner, one)
        self._begin_some()

    def forget(self, one: Handshake) -> None:
        """Remove a lost connection: its step is not to be done."""
        self._waiting.remove(one.owner, one)

    def close(self) -> None:
        """Begin no more steps."""
        self._is_closed = True
        self._threads.close()

    def _begin_some(self) -> None:
        """Begin steps until every thread has one."""
        while self._at_work < THREADS and self._waiting.count and not self._is_closed:
            one = self._waiting.take()
            work = one.begin_work()
            if work is not None:
                self._at_work += 1
                self._threads.begin(work).add_done_callback(partial(self._end, one))

    def _end(self, one: Handshake, done: asyncio.Future[Outcome]) -> None:
        self._at_work -= 1
        self._begin_some()
        if not done.cancelled():
            one.end_work(done.exception() or done.result())


def shake_hands(pump: TlsPump, received: bytes) -> Outcome:
    """Perform one step with all that was received. For a thread: nothing else may use the pump
    meanwhile.
    """
    data, begin = memoryview(received), 0
    try:
        while begin < len(data) and not pump.is_established:
            piece = data[begin : begin + RECORD_BYTES]
            begin += len(piece)
            pump.feed(piece)
            pump.shake_hands()
    except TlsError as error:
        return Outcome(begin, str(error))
    return Outcome(begin)
