"""The broker of a test on the running loop: started, stopped, killed, and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.metrics.loop_lag import LoopLagMeter
from kohort.testing.kit.faults import Faults
from kohort.testing.kit.groups import Groups
from kohort.testing.kit.machine import HOST, Machine
from kohort.testing.kit.topics import Topics

logger = logging.getLogger("kohort.testing")

DEFAULTS: Final = {
    "kohort.metrics.port": "-1",
    # A test has no time for what spares a production group a few rebalances.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    # Each partition costs a start some time, and a test has few groups.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # What is under way at the end of a test is of no interest to it.
    "kohort.shutdown.timeout.ms": "1000",
}
"""Where the broker of a test differs from one in production, unless the test says otherwise."""


class StillMeter(LoopLagMeter):
    """Does not look at the loop, which belongs to a test."""

    def start(self) -> None:
        """Twenty ticks a second would be most of what happens on virtual time."""


class _Run:
    """One broker, from its start to its stop."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_up = asyncio.Event()
        self.stop = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name="broker of a test")

    async def _run(self) -> None:
        async with self.broker.running():
            self.is_up.set()
            await self.stop.wait()

    async def wait_up(self) -> None:
        """Raises StartError."""
        up = asyncio.ensure_future(self.is_up.wait())
        await asyncio.wait([up, self.task], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        self.stop.set()
        await self.task


class KitBroker:
    """The broker, or none between `stop` and `start`; the machine and the faults stay."""

    def __init__(
        self, settings: Mapping[str, object], machine: Machine, port: int, random: Random
    ) -> None:
        """`settings` are the broker's under Kafka's names; `random` chooses what a crash loses."""
        self.machine = machine
        self.port = port
        self.faults = Faults()
        self.topics: Topics
        self.groups: Groups
        self._settings = dict(settings)
        self._random = random
        self._run: _Run | None = None

    @property
    def broker(self) -> Broker:
        """RuntimeError while there is none."""
        if self._run is None:
            raise RuntimeError("the broker does not run")
        return self._run.broker

    @property
    def is_running(self) -> bool:
        return self._run is not None

    async def start(self) -> None:
        """Raises StartError, ConfigError."""
        listener = {
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": self.machine.data,
        }
        settings = {**DEFAULTS, **listener, **self._settings}
        given = [f"{name}={_text(value)}" for name, value in settings.items()]
        broker = Broker(load(overrides=given, environment={}), environment=self.machine)
        broker.metrics.loop_lag = StillMeter()
        run = _Run(broker)
        await run.wait_up()
        self._run = run
        self.faults.attach(broker.router)
        self.topics = Topics(broker, logger)
        self.groups = Groups(broker)

    async def stop(self) -> None:
        """As SIGTERM does; nothing if it does not run."""
        run, self._run = self._run, None
        if run is not None:
            self.faults.detach()
            await run.end()

    async def restart(self) -> None:
        """Stop cleanly and start on what was stored. Clients lose their connections."""
        await self.stop()
        await self.start()

    async def crash(self, *, lose_unsynced: bool) -> None:
        """As kill -9 does, or somebody at the plug with `lose_unsynced`; then start again."""
        run = self._run
        if run is None:
            raise RuntimeError("the broker does not run")
        # What it has written by now is what the next one finds. It goes on for a while, unheard and
        # on files that nobody reads: to let it stop is the way to be rid of its tasks.
        former = self.machine
        self.machine = former.lose(unsynced=lose_unsynced, random=self._random)
        self._run = None
        self.faults.detach()
        run.broker.network.abort()
        await run.end()
        former.close()
        await self.start()

    def fill_disk(self, bytes_left: int | None) -> None:
        """Let files grow by so much; None for without limit."""
        self.machine.fill(bytes_left)

    async def close(self) -> None:
        """The end of the test."""
        try:
            await self.stop()
        finally:
            self.machine.close()


def _text(value: Any) -> str:  # noqa: ANN401 - whatever the test wrote.
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
