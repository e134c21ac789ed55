"""A broker in this process, without clients: for what only the coordinator and the loop do."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import uvloop

from benchmarks.harness import Measured
from kohort.broker.app import Broker
from kohort.broker.config import load


@asynccontextmanager
async def broker_here(
    directory: Path, initial_delay_ms: int = 3_000, *more: str
) -> AsyncIterator[Broker]:
    """The broker, with `more` settings of the form name=value."""
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
        f"group.initial.rebalance.delay.ms={initial_delay_ms}",
        *more,
    )
    loaded = load(file=None, overrides=settings, environment={})
    broker = Broker(loaded)
    with ExitStack() as when_stopped:
        async with broker.running():
            reclaimer = broker.new_memory_reclaimer()
            reclaimer.start()
            when_stopped.callback(reclaimer.stop)
            yield broker


def run(work: Callable[[Path], Awaitable[Measured]], directory: Path) -> Measured:
    """On the loop that the broker has when it runs as a service."""

    async def run_it() -> Measured:
        return await work(directory)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_it())


def run_apart(work: Callable[[Path], Awaitable[Measured]], directory: Path) -> Measured:
    """In a process of its own, where nothing else lives. `work` is picklable."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, work, directory).result()
