"""The event loop of a simulation: no sockets, no threads, and time that passes only by waiting.

What a broker hands to its executor is done on the loop, after a time that the simulation chooses;
what it listens on is a port of the in-memory network. So nothing is left that could go one way in
one run and another way in the next.
"""

import asyncio
import math
import selectors
from collections.abc import Callable
from typing import Any

from kohort.testing.virtual_clock import VirtualClock


class NothingToDoError(Exception):
    """No timer is set and nothing is ready: in a simulation, that lasts for ever."""


class _Selector(selectors.DefaultSelector):
    """Never looks at the loop's own pipe, the only descriptor there is; lets the clock wait."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingToDoError
        if timeout > 0:
            self._clock.advance(math.ceil(timeout * 1000 - 1e-6))
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`latency_ms` says how long the next piece of work in an executor takes; `listen` is told of
    servers: the bound socket, and what makes a protocol for each connection.
    """

    def __init__(
        self,
        clock: VirtualClock,
        *,
        latency_ms: Callable[[], int],
        listen: Callable[[Any, Callable[[], asyncio.BaseProtocol]], None],
    ) -> None:
        self._virtual_clock = clock
        self._latency_ms = latency_ms
        self._listen = listen
        super().__init__(_Selector(clock))
        # PYTHONASYNCIODEBUG would measure how long callbacks take, on a clock that stands still.
        self.set_debug(False)

    def time(self) -> float:
        return self._virtual_clock.monotonic_ms() / 1000

    def run_in_executor(  # type: ignore[override]  # Typed by asyncio as a coroutine; it is a future.
        self,
        executor: object,
        func: Callable[..., Any],
        *args: Any,  # noqa: ANN401 - as in asyncio.
    ) -> asyncio.Future[Any]:
        """Done when its time is over, all at once; a cancelled wait does not stop it."""
        future = self.create_future()
        latency_ms = self._latency_ms()
        if latency_ms:
            self.call_later(latency_ms / 1000, _do, future, func, args)
        else:
            _do(future, func, args)
        return future

    async def create_server(self, protocol_factory: Any, *_: Any, **options: Any) -> Any:  # noqa: ANN401
        """Only for sockets that the simulated machine has bound."""
        bound = options["sock"]
        self._listen(bound, protocol_factory)
        return bound

    def _write_to_self(self) -> None:
        """No thread has to be woken: there are no other threads."""


def _do(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        outcome = func(*args)
    except Exception as error:  # noqa: BLE001 - it is the future's.
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(outcome)
