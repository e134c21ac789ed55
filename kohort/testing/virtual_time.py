"""A loop and a process clock on virtual time, for code that does not take a clock as a parameter.

Inside `virtual_time`, the functions of `time` return the virtual time to the thread that entered
it, and to no other. Code that imported such a function by name before, or reads the time in another
way (`datetime.now`), gets the real time.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from kohort.testing.inline_executor import finished
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop
from kohort.testing.virtual_network import VirtualNetwork, VirtualPort, VirtualServer

T = TypeVar("T")

LIMIT_S: Final = 86_400.0

BUSY_ITERATIONS_PER_MS: Final = 100
"""A millisecond passes after this many iterations without a wait: aiokafka, for example, polls with
a timeout of 0 until its deadline has passed."""


class VirtualTimeError(Exception):
    """The limit of virtual time was reached, because a test waits for an event that never comes."""


class VirtualLoop(VirtualClockLoop):
    """A loop whose virtual connections stay in memory; blocking calls run inline."""

    def __init__(
        self, clock: VirtualClock, network: VirtualNetwork, limit_s: float = LIMIT_S
    ) -> None:
        """`limit_s`: virtual time after which VirtualTimeError ends a run."""
        self._network = network
        self._lasts_s = limit_s
        self._limit_s = clock.monotonic_ms() / 1_000 + limit_s
        super().__init__(clock, busy_iterations_per_ms=BUSY_ITERATIONS_PER_MS)

    def time(self) -> float:
        now_s = self._virtual_clock.monotonic_ms() / 1000
        if now_s > self._limit_s:
            self._limit_s = math.inf
            raise VirtualTimeError(
                f"{self._lasts_s:g} s of virtual time have passed, and the test is still waiting"
            )
        return now_s

    async def create_server(
        self,
        protocol_factory: Any,  # noqa: ANN401 - as in asyncio.
        host: Any = None,  # noqa: ANN401 - as above.
        port: Any = None,  # noqa: ANN401 - as above.
        *,
        sock: Any = None,  # noqa: ANN401 - as above.
        **options: Any,  # noqa: ANN401 - as above.
    ) -> Any:  # noqa: ANN401 - as above.
        if isinstance(sock, VirtualPort):
            return VirtualServer(sock, protocol_factory)
        return await super().create_server(protocol_factory, host, port, sock=sock, **options)

    async def create_connection(
        self,
        protocol_factory: Any,  # noqa: ANN401 - as above.
        host: Any = None,  # noqa: ANN401 - as above.
        port: Any = None,  # noqa: ANN401 - as above.
        *,
        ssl: Any = None,  # noqa: ANN401 - as above.
        **options: Any,  # noqa: ANN401 - as above.
    ) -> Any:  # noqa: ANN401 - as above.
        if not self._network.is_here(host, port):
            return await super().create_connection(protocol_factory, host, port, ssl=ssl, **options)
        if ssl:
            raise ConnectionError("the virtual network does not support TLS")
        return await self._network.connect(protocol_factory, port)

    def run_in_executor(  # type: ignore[override]  # Typed by asyncio as a coroutine; it is a future.
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - as in asyncio.
    ) -> asyncio.Future[T]:
        del executor
        return finished(self, func, *args)


@contextmanager
def virtual_time(clock: VirtualClock) -> Iterator[None]:
    """Enter virtual time; `time.sleep` advances the clock too."""
    owner = threading.get_ident()
    real = {name: getattr(time, name) for name in ("monotonic", "time", "sleep")}
    real |= {name: getattr(time, name) for name in ("monotonic_ns", "time_ns")}

    def replaced(name: str, virtual: Callable[..., Any]) -> Callable[..., Any]:
        def read_clock(*args: Any) -> Any:  # noqa: ANN401 - of any of them.
            is_ours = threading.get_ident() == owner
            return virtual(*args) if is_ours else real[name](*args)

        return read_clock

    virtual: dict[str, Callable[..., Any]] = {
        "monotonic": lambda: clock.monotonic_ms() / 1_000,
        "monotonic_ns": lambda: clock.monotonic_ms() * 1_000_000,
        "time": lambda: clock.wall_ms() / 1_000,
        "time_ns": lambda: clock.wall_ms() * 1_000_000,
        "sleep": lambda seconds: clock.advance(math.ceil(seconds * 1_000)) and None,
    }
    for name, virtual_function in virtual.items():
        setattr(time, name, replaced(name, virtual_function))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(time, name, function)
