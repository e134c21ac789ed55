"""The broker of a test on the running loop: starting, stopping, killing and restarting it."""

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Final

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.metrics.stalls import LoopLagMeter
from kohort.testing.kit.faults import Faults
from kohort.testing.kit.groups import Groups, KitGroup
from kohort.testing.kit.machine import HOST, Machine
from kohort.testing.kit.topics import Topics, texts_of

logger = logging.getLogger("kohort.testing")

DEFAULTS: Final = {
    "kohort.metrics.port": "-1",
    "kohort.console.port": "-1",
    # The delay saves a production group a few rebalances, but slows down a test.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    # Each partition adds to the startup time, and a test has few groups.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Unfinished work at the end of a test does not matter.
    "kohort.shutdown.timeout.ms": "1000",
}
"""Default settings of a test's broker that differ from production."""


class StillMeter(LoopLagMeter):
    """A loop lag meter that measures nothing, because the loop also runs the test itself."""

    def start(self) -> None:
        """Do nothing: twenty ticks per second would dominate the event count on virtual time."""


class _Run:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topics: Topics
        """Set when the broker has started."""
        self.is_up = asyncio.Event()
        self.stop = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name="broker of a test")

    async def _run(self) -> None:
        async with self.broker.running():
            self.is_up.set()
            await self.stop.wait()

    async def wait_up(self) -> None:
        """Wait until the broker is up. Raises StartError."""
        up = asyncio.ensure_future(self.is_up.wait())
        await asyncio.wait([up, self.task], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self.task.done():
            self.task.result()

    async def end(self) -> None:
        self.stop.set()
        await self.task


class KitBroker:
    """A broker that can be stopped, killed and restarted; its disks and injected faults persist."""

    def __init__(
        self, settings: Mapping[str, object], machine: Machine, port: int, random: Random
    ) -> None:
        """`settings`: by Kafka's setting names; `random` determines which writes a crash loses."""
        self.machine = machine
        self.port = port
        self.faults = Faults()
        self.groups: Groups
        self._settings = dict(settings)
        self._random = random
        self._run: _Run | None = None

    @property
    def broker(self) -> Broker:
        """The running broker. Raises RuntimeError if it is stopped."""
        return self._running.broker

    @property
    def topics(self) -> Topics:
        """The topics. Raises RuntimeError if the broker is stopped."""
        return self._running.topics

    @property
    def _running(self) -> _Run:
        if self._run is None:
            raise RuntimeError("the broker is stopped")
        return self._run

    @property
    def is_running(self) -> bool:
        return self._run is not None

    async def start(self) -> None:
        """Start the broker. Raises StartError, ConfigError."""
        listener = {
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": self.machine.data,
        }
        settings = {**DEFAULTS, **listener, **self._settings}
        given = [f"{name}={text}" for name, text in texts_of(settings).items()]
        broker = Broker(load(overrides=given, environment={}), environment=self.machine)
        broker.metrics.loop_lag = StillMeter()
        run = _Run(broker)
        await run.wait_up()
        self._run = run
        self.faults.attach(broker.router)
        run.topics = Topics(broker, logger)
        self.groups = Groups(broker)

    async def stop(self) -> None:
        """Stop the broker as SIGTERM does; do nothing if it is stopped already."""
        run, self._run = self._run, None
        if run is not None:
            self.faults.detach()
            await run.end()

    async def restart(self) -> None:
        """Stop the broker cleanly, and start it again. Clients lose their connections."""
        await self.stop()
        await self.start()

    async def crash(self, *, lose_unsynced: bool) -> None:
        """Kill the broker like kill -9, or with `lose_unsynced` by a power failure; restart it."""
        run = self._running
        # The next broker gets a copy of the data written until now. The killed one must still be
        # stopped to end its tasks: it has no connections, and nobody reads its files any more.
        former = self.machine
        self.machine = former.lose(unsynced=lose_unsynced, random=self._random)
        self._run = None
        self.faults.detach()
        run.broker.network.abort()
        await run.end()
        former.close()
        await self.start()

    def group(self, name: str) -> KitGroup:
        return KitGroup(name, lambda: self.groups)

    async def why(self) -> dict[str, list[str]]:
        """Return the output of `kohort groups why` for each group; {} if the broker is stopped."""
        if not self.is_running:
            return {}
        return {name: await self.group(name).why() for name in self.groups.ids()}

    def fill_disk(self, bytes_left: int | None) -> None:
        """Let files grow by at most `bytes_left`; None for no limit."""
        self.machine.fill(bytes_left)

    async def close(self) -> None:
        try:
            await self.stop()
        finally:
            self.machine.close()
