"""A broker's environment: clock, files, sockets, threads and randomness.

All nondeterminism of a broker comes from its environment. A simulation replaces the environment;
runs with the same seed are then identical.
"""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Final

from kohort.broker.network.server.listening import listening_sockets, raise_descriptor_limit
from kohort.broker.runtime.clock import Clock, SystemClock
from kohort.broker.storage.filesystem import OS_FILES, FileSystem, make_private_directory
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.metadata.store import MetadataStore

if TYPE_CHECKING:
    import uuid

IO_THREADS: Final = 4
"""Threads for fsync, cold reads and compaction; more would only queue at the disk."""


class Environment:
    clock: Clock = SystemClock()
    files: FileSystem = OS_FILES
    metadata: MetadataStore | None = None
    """Replaces the databases in the data directory; None: the databases are used."""

    def lock(self, directory: Path) -> AbstractContextManager[object]:
        """Create the data directory, accessible by its owner only, and lock it against other
        brokers for the duration of the context.

        Raises DataDirectoryLockedError or OSError.
        """
        make_private_directory(directory)
        return DataDirectoryLock(directory)

    def bind(
        self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> list[socket]:
        return listening_sockets(
            host,
            port,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
        )

    def descriptor_limit(self) -> int:
        """Raise the limit of open file descriptors as far as possible, and return it."""
        return raise_descriptor_limit()

    def new_executor(self) -> Executor:
        return ThreadPoolExecutor(IO_THREADS, thread_name_prefix="kohort-io")

    def new_uuid(self) -> uuid.UUID:
        """Return a new UUID, for a member id or a topic id."""
        import uuid  # noqa: PLC0415 - 2 ms, with the first member or topic.

        return uuid.uuid4()
