"""The machine of a test's broker: a reserved port, and files on disk or in memory. It outlives the
broker.
"""

import resource
import shutil
import socket
import uuid
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Final

from kohort.broker.environment import Environment
from kohort.broker.runtime.clock import Clock
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem

HOST: Final = "127.0.0.1"
DATA: Final = "/data"


class ReservedPort:
    """A port reserved until `close`, also while no broker listens on it.

    A socket that is bound and does not listen reserves the port; with SO_REUSEADDR the broker can
    bind it too.
    """

    def __init__(self, port: int = 0) -> None:
        """Reserve a port, 0 for any. Raises OSError if it is taken."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, port))
        except OSError:
            self._socket.close()
            raise
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()


class UnsupportedError(Exception):
    """The machine does not support the operation; the text says which machine does."""


class _TestMachine(Environment):
    """Common base of the machines."""

    def descriptor_limit(self) -> int:
        """Return "unlimited": the process belongs to the test, so descriptors are not budgeted."""
        return resource.RLIM_INFINITY


class DiskMachine(_TestMachine):
    """A machine with files in a directory, like a broker in production."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "data"

    @property
    def data(self) -> str:
        """The value of log.dirs."""
        return str(self.directory)

    def lose(self, *, unsynced: bool, random: Random) -> "DiskMachine":
        """Return a machine for the next broker, with a copy of the files. Raises UnsupportedError
        if unsynced writes are to be lost.
        """
        del random
        if unsynced:
            raise UnsupportedError("only an in-memory disk can lose unsynced writes")
        other = DiskMachine(self.directory.parent)
        other.directory = self.directory.with_name(f"{self.directory.name}+")
        shutil.copytree(self.directory, other.directory, ignore=shutil.ignore_patterns(".lock"))
        return other

    def fill(self, bytes_left: int | None) -> None:
        """Raise UnsupportedError: only a disk in memory has a limit."""
        del bytes_left
        raise UnsupportedError("only an in-memory disk can be filled")

    def close(self) -> None:
        """Do nothing: the directory belongs to the caller."""


class MemoryMachine(_TestMachine):
    files: SimulatedFileSystem
    metadata: LastingMetadata
    data: Final = DATA

    def __init__(self, clock: Clock | None = None, random: Random | None = None) -> None:
        """`random` generates ids of topics and members; without it, ids differ from run to run."""
        if clock is not None:
            self.clock = clock
        self._random = random
        self.files = SimulatedFileSystem()
        self.files.wall_ms = self.clock.wall_ms()
        self.metadata = LastingMetadata()

    def lock(self, directory: Path) -> AbstractContextManager[object]:
        """Lock nothing: there are no other processes and no real directory."""
        del directory
        return nullcontext()

    def new_executor(self) -> Executor:
        return InlineExecutor()

    def new_uuid(self) -> uuid.UUID:
        if self._random is None:
            return uuid.uuid4()
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def lose(self, *, unsynced: bool, random: Random) -> "MemoryMachine":
        """Return a machine for the next broker, with a copy of the files; with `unsynced`, in the
        state in which a power failure leaves them.
        """
        other = type(self)(self.clock, self._random)
        self._copy_to(other)
        if unsynced:
            other.files.lose_power(random.randrange)
        return other

    def _copy_to(self, other: "MemoryMachine") -> None:
        other.metadata.end()
        other.files = self.files.copy()
        other.files.clear_faults()
        other.metadata = self.metadata.copy()

    def fill(self, bytes_left: int | None) -> None:
        """Let files grow by at most `bytes_left`; None for no limit."""
        self.files.space_left = bytes_left

    def close(self) -> None:
        self.metadata.end()


Machine = MemoryMachine | DiskMachine
