"""The machine a broker runs on: time, files, sockets, threads and chance.

Whatever makes two runs of a broker differ comes from here. A simulation replaces it, and with the
same seed the same broker then does the same.
"""

import uuid
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from socket import socket
from typing import Final

from kohort.broker.network.server.listening import listening_sockets, raise_descriptor_limit
from kohort.broker.runtime.clock import Clock, SystemClock
from kohort.broker.storage.filesystem import FileSystem, make_private_directory
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.log.log import OS_FILES
from kohort.broker.storage.metadata.store import MetadataStore

IO_THREADS: Final = 4
"""fsync, cold reads and compaction; more would only queue at the disk."""


class Environment:
    """The real one."""

    clock: Clock = SystemClock()
    files: FileSystem = OS_FILES
    metadata: MetadataStore | None = None
    """Replaces the databases in the data directory."""

    def lock(self, directory: Path) -> AbstractContextManager[object]:
        """Make the data directory for its owner alone, and keep other brokers out of it as long as
        the context lasts.

        Raises DataDirectoryLockedError or OSError.
        """
        make_private_directory(directory)
        return DataDirectoryLock(directory)

    def bind(
        self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> list[socket]:
        """Bound sockets, see `listening_sockets`."""
        return listening_sockets(
            host,
            port,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
        )

    def descriptor_limit(self) -> int:
        """Return how many descriptors this process may open, after raising that limit as far as
        the operating system allows.
        """
        return raise_descriptor_limit()

    def new_executor(self) -> Executor:
        """Return an executor for work that blocks."""
        return ThreadPoolExecutor(IO_THREADS, thread_name_prefix="kohort-io")

    def new_uuid(self) -> uuid.UUID:
        """One that was never used: the end of a member id, the id of a topic."""
        return uuid.uuid4()
