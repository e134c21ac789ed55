"""The lock on a data directory: two brokers on one directory would destroy each other's logs.

An flock on `.lock`, as Kafka takes it: the kernel gives it back when the process ends, however it
ends, so there is nothing to clean up after a crash.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kohort.broker.storage.errors import DataDirectoryLockedError

FILE_NAME = ".lock"


class DataDirectoryLock:
    """Held from construction until `release` or the end of the process.

    Raises DataDirectoryLockedError if another holder has it, OSError if the directory cannot be
    used.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(
            directory / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        # For the operator who meets the message above; Kafka leaves the file empty, as a full disk
        # does.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the directory; further calls do nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
