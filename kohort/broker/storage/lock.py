"""The lock on a data directory: two brokers on one directory would destroy each other's logs.

It is a POSIX lock on the whole file `.lock`, like Kafka's, so Kohort and Kafka exclude each other;
flock would not conflict with Kafka's lock. The lock belongs to the open file description: a classic
POSIX lock would be lost as soon as anything in the process closed the file. The kernel releases it
when the process ends in any way, so there is nothing to clean up after a crash.
"""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

from kohort.broker.storage.errors import DataDirectoryLockedError

FILE_NAME = ".lock"


class DataDirectoryLock:
    """The lock, held from construction until `release` or the end of the process.

    Raises DataDirectoryLockedError if another process holds it, OSError if the directory is
    unusable.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(
            directory / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            _lock(self._descriptor, fcntl.F_WRLCK)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise DataDirectoryLockedError(
                f"the data directory {directory.resolve()} is in use by another broker"
                + (f" (process {holder})" if holder else "")
            ) from None
        except BaseException:
            os.close(self._descriptor)
            raise
        # Another process that fails to get the lock shows this process id in its error message.
        # The file stays empty if Kafka has the lock, or the disk is full.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._descriptor >= 0:
            # Remove our process id: Kafka, if it locks the file next, does not change the content.
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def is_locked(directory: Path) -> bool:
    """Whether a broker, Kohort or Kafka, uses a directory; False if unknown."""
    try:
        descriptor = os.open(directory / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _lock(descriptor, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int, kind: int) -> None:
    """Lock a whole file. Raises BlockingIOError if another process holds the lock."""
    whole = struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole)
