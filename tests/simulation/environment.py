"""What a simulated broker runs on, and what is left of it when it is gone."""

import importlib
import uuid
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from socket import socket
from typing import cast

from kohort.broker.assembly.deferred_coordinators import MODULE as COORDINATORS
from kohort.broker.environment import Environment
from kohort.broker.handlers import load_handlers
from kohort.broker.metrics.stalls import LoopLagMeter
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.network import Network, Port

# Simulated brokers load nothing on another thread, so each request is executed when it is read.
importlib.import_module(COORDINATORS)
load_handlers()


class DurableMetadata(LastingMetadata):
    """Metadata to copy: otherwise a broker that was killed would share it with the next one."""

    def copy(self) -> "DurableMetadata":
        """For the next broker, while the last one may still write for a while, unheard."""
        other = DurableMetadata(self.cluster_id)
        other.adopt(self._properties, self._topics.values())
        return other


class StillMeter(LoopLagMeter):
    """On virtual time the loop is never late."""

    def start(self) -> None:
        """Twenty ticks a second would be most of what happens."""


class SimulatedEnvironment(Environment):
    """All chance comes from `random`."""

    clock: VirtualClock
    files: SimulatedFileSystem
    metadata: DurableMetadata

    def __init__(
        self,
        clock: VirtualClock,
        network: Network,
        random: Random,
        files: SimulatedFileSystem,
        metadata: DurableMetadata,
    ) -> None:
        self.clock = clock
        self.files = files
        self.metadata = metadata
        self._network = network
        self._random = random

    def lock(self, directory: Path) -> AbstractContextManager[object]:
        """There is no other broker, and no real directory."""
        return nullcontext()

    def bind(
        self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> list[socket]:
        return [cast(socket, Port(self._network, port))]

    def new_executor(self) -> Executor:
        return Executor()

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)
