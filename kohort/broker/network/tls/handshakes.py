"""Computes the steps of TLS handshakes in threads, round robin over clients' address blocks.

A step takes a quarter of a millisecond with a P-256 key, and several milliseconds with an RSA key
of 4,096 bits; OpenSSL releases the interpreter lock meanwhile, so the event loop continues.
"""

import asyncio
import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.network.tls.pump import RECORD_BYTES, TlsError, TlsPump
from kohort.broker.runtime.low_priority_threads import Threads

THREADS: Final = 2


class StepResult(NamedTuple):
    used_bytes: int
    """Consumed bytes of the received data."""
    failure: str = ""
    """The reason if the handshake has failed; empty otherwise."""


class Handshake(Hashable, Protocol):
    @property
    def address_block(self) -> str: ...

    def start_step(self) -> Callable[[], StepResult] | None:
        """Return the function that a thread calls to compute the step, or None if the connection is
        closing.
        """
        ...

    def finish_step(self, outcome: StepResult | BaseException) -> None:
        """Continue with the result or exception of the step. Must not raise."""
        ...


class Handshakes:
    """A fair queue of handshake steps, and the threads that compute them."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._waiting: FairQueue[str, Handshake] = FairQueue(sys.maxsize)
        """Queued handshakes by address block. Bounded: a connection is queued at most once."""
        self._running_count = 0
        self._is_closed = False

    def schedule(self, handshake: Handshake) -> None:
        """Queue a step. Not to be called again before `start_step`."""
        self._waiting.add(handshake.address_block, handshake)
        self._start_steps()

    def remove(self, handshake: Handshake) -> None:
        self._waiting.remove(handshake.address_block, handshake)

    def close(self) -> None:
        """Stop starting handshake steps."""
        self._is_closed = True
        self._threads.close()

    def _start_steps(self) -> None:
        while self._running_count < THREADS and self._waiting.count and not self._is_closed:
            handshake = self._waiting.take()
            work = handshake.start_step()
            if work is not None:
                self._running_count += 1
                self._threads.begin(work).add_done_callback(partial(self._end, handshake))

    def _end(self, handshake: Handshake, done: asyncio.Future[StepResult]) -> None:
        self._running_count -= 1
        self._start_steps()
        if not done.cancelled():
            handshake.finish_step(done.exception() or done.result())


def run_step(pump: TlsPump, received: bytes) -> StepResult:
    """Compute a step from the received data, in a thread; no other may use the pump meanwhile."""
    data, begin = memoryview(received), 0
    try:
        while begin < len(data) and not pump.is_established:
            record = data[begin : begin + RECORD_BYTES]
            begin += len(record)
            pump.feed(record)
            pump.do_handshake()
    except TlsError as error:
        return StepResult(begin, str(error))
    return StepResult(begin)
