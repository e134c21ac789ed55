"""The file system interface of storage: narrow, so that tests can inject every kind of failure.

Two implementations: :class:`OsFileSystem` here, and :mod:`kohort.testing.simulated_filesystem`, an
in-memory one that can fill up, fail and lose power. Both raise OSError and nothing else.

A :class:`File` is a handle on a path, not an open descriptor. OsFileSystem opens descriptors when
they are first needed and closes unused ones above a limit, so that any number of partitions can be
open at once. Descriptors are closed by reference counting: a thread inside fsync keeps its own
reference, so the loop thread may drop or evict the file meanwhile, and the descriptor number cannot
be reused during the sync. A connection that is being sent a range of a file keeps a reference in
the same way.
"""

from __future__ import annotations

import os
import resource
import stat
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from kohort.broker.storage.file_range import FileRange

Buffer: TypeAlias = bytes | bytearray | memoryview

OPEN_FILES_MAX = 8192
"""Maximum number of open descriptors, whatever the limit of the process is."""
_RANGES_PART = 8
"""Ranges keep descriptors of evicted or removed files open beyond the limit of open descriptors, so
the number of ranges is at most this fraction (1/8) of the limit."""
_RANGES_ALWAYS = 16
"""Number of ranges that may be in use even if the limit of open descriptors is low."""

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
"""Modes of new directories and files: only the broker may read them. Existing modes are kept."""
_ONLY_CACHED = getattr(os, "RWF_NOWAIT", 0)
"""Makes preadv fail instead of waiting for the disk; defined on Linux only."""
_WRITE_BUFFERS_MAX = 1024
"""IOV_MAX on Linux."""


class DirectoryEntry(NamedTuple):
    name: str
    size_bytes: int
    is_directory: bool
    modified_ms: int
    """Wall-clock time of the last write."""


class File(Protocol):
    """One file, addressed by byte positions. Methods may be called from several threads."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Read `length` bytes from `position`; fewer only where the file ends."""
        ...

    def pread_cached(self, length: int, position: int) -> bytes:
        """Read without waiting for the disk; returns fewer bytes if the rest is not in the page
        cache.

        Raises BlockingIOError if nothing is cached; another OSError if the file system does not
        support such reads.
        """
        ...

    def range(self, start: int, stop: int) -> FileRange | None:
        """Return a range to send without reading it into memory; None if `pread` has to be used.

        The data must be in the page cache, and the number of ranges in use is limited.
        """
        ...

    def is_cached(self, start: int, stop: int) -> bool:
        """Whether these bytes are in the page cache, so that `pread` does not wait for the disk."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at `position`; return how many bytes were written, possibly fewer than given."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Return once content and size are on disk (fdatasync)."""
        ...

    def drop_cached(self) -> None:
        """Drop clean cached pages, so that the next reads come from the disk itself."""
        ...

    def close(self) -> None:
        """Close the descriptor; the next use opens it again. Never syncs."""
        ...


class FileSystem(Protocol):
    def file(self, path: str) -> File:
        """Return a handle on an existing file, which is opened on first use."""
        ...

    def create(self, path: str) -> File:
        """Create an empty file, replacing any existing one."""
        ...

    def entries(self, directory: str) -> list[DirectoryEntry]: ...

    def exists(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename `source` to `target`, replacing a file of that name."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on disk."""
        ...


def write_fully(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers one after another and return the position after them.

    The kernel may write fewer bytes than requested, on a full disk as many as fit. So after an
    OSError a part of the bytes may be in the file.
    """
    expected = sum(map(len, buffers))
    written = file.pwritev(buffers, position)
    if written == expected:
        return position + expected
    rest = memoryview(b"".join(buffers))[written:]
    position += written
    while rest:
        written = file.pwritev((rest,), position)
        if written <= 0:
            raise OSError(f"{file.path}: a write took {written} of {len(rest)} bytes")
        position += written
        rest = rest[written:]
    return position


def make_private_directory(path: Path) -> None:
    """Create a directory that only its owner can enter, and its parents, unless it exists."""
    path.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)


def read_file(files: FileSystem, path: str) -> bytes:
    """Return the whole content of a (small) file."""
    file = files.file(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


class _Descriptor:
    """An open file descriptor that is closed with its last reference."""

    __slots__ = ("number",)

    def __init__(self, path: str, flags: int) -> None:
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class OsFile:
    """A file of the operating system; see the module docstring for when it is open.

    Every method keeps the descriptor in a local variable while it uses the number: another thread
    may evict the file at any moment.
    """

    __slots__ = ("_descriptor", "_files", "path", "recently_used")

    def __init__(self, path: str, files: OsFileSystem, descriptor: _Descriptor | None) -> None:
        self.path = path
        self.recently_used = True
        self._files = files
        self._descriptor = descriptor

    def _open(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = _Descriptor(self.path, os.O_RDWR)
            self._files.note_open(self)
        self.recently_used = True
        return descriptor

    def size(self) -> int:
        descriptor = self._open()
        return os.fstat(descriptor.number).st_size

    def pread(self, length: int, position: int) -> bytes:
        descriptor = self._open()
        data = os.pread(descriptor.number, length, position)
        if len(data) == length or not data:
            return data
        # A limit of the kernel (2 GiB) may end a read early; only zero bytes mean the end.
        parts = [data]
        taken = len(data)
        while taken < length:
            data = os.pread(descriptor.number, length - taken, position + taken)
            if not data:
                break
            parts.append(data)
            taken += len(data)
        return b"".join(parts)

    def pread_cached(self, length: int, position: int) -> bytes:
        descriptor = self._open()
        data = bytearray(length)
        count = os.preadv(descriptor.number, (data,), position, _ONLY_CACHED)
        return bytes(data if count == length else data[:count])

    def range(self, start: int, stop: int) -> FileRange | None:
        from kohort.broker.storage.file_range import FileRange  # noqa: PLC0415 - ctypes, when needed.

        descriptor = self._open()
        if not _is_cached(descriptor, start, stop) or not self._files.may_give_range():
            return None
        return FileRange(descriptor, start, stop, self._files.note_range_gone)

    def is_cached(self, start: int, stop: int) -> bool:
        return _is_cached(self._open(), start, stop)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._open()
        self.recently_used = True
        return os.pwritev(descriptor.number, buffers[:_WRITE_BUFFERS_MAX], position)

    def truncate(self, size_bytes: int) -> None:
        descriptor = self._open()
        os.ftruncate(descriptor.number, size_bytes)

    def sync(self) -> None:
        descriptor = self._open()
        os.fdatasync(descriptor.number)

    def drop_cached(self) -> None:
        descriptor = self._open()
        os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._descriptor = None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None


class OsFileSystem:
    """The operating system's files, with a limit on open descriptors.

    The limit is soft: a handle first opens its file; then the descriptors of files that were not
    used recently are closed down to the limit (the clock algorithm, a cheap approximation of
    least-recently-used: a use costs one attribute store). A file with unsynced writes may be
    closed: Linux reports a failed write-back to the next fsync through any descriptor of that file.

    Args:
        open_files_max: by default half of the process's current limit, which may be raised later;
            at most OPEN_FILES_MAX.
    """

    def __init__(self, open_files_max: int | None = None) -> None:
        self._open_files_max = open_files_max
        self._open_files: deque[OsFile] = deque()
        self._lock = threading.Lock()
        self._range_count = 0
        self._range_lock = threading.RLock()
        """Reentrant, because a range may be released anywhere, also by the garbage collector."""

    def may_give_range(self) -> bool:
        """Count a new file range and return True; if there are too many, only return False."""
        with self._range_lock:
            count = self._range_count
            if count >= _RANGES_ALWAYS and count * _RANGES_PART >= self._limit():
                return False
            self._range_count += 1
            return True

    def note_range_gone(self) -> None:
        """Called when a range is released."""
        with self._range_lock:
            self._range_count -= 1

    @property
    def range_count(self) -> int:
        return self._range_count

    def note_open(self, file: OsFile) -> None:
        """Called by a file that has just opened its descriptor."""
        with self._lock:
            self._open_files.append(file)
            limit = self._limit()
            spared = 0
            while len(self._open_files) > limit:
                oldest = self._open_files.popleft()
                if not oldest.is_open:
                    continue
                was_used, oldest.recently_used = oldest.recently_used, False
                if oldest is file or (was_used and spared < limit):
                    self._open_files.append(oldest)
                    spared += 1
                else:
                    oldest.close()

    def _limit(self) -> int:
        if self._open_files_max is not None:
            return max(1, self._open_files_max)
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft_limit == resource.RLIM_INFINITY:
            return OPEN_FILES_MAX
        return max(1, min(OPEN_FILES_MAX, soft_limit // 2))

    @property
    def open_count(self) -> int:
        with self._lock:
            return sum(file.is_open for file in self._open_files)

    def file(self, path: str) -> OsFile:
        return OsFile(path, self, None)

    def create(self, path: str) -> OsFile:
        descriptor = _Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        file = OsFile(path, self, descriptor)
        self.note_open(file)
        return file

    def entries(self, directory: str) -> list[DirectoryEntry]:
        content = []
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                is_directory = stat.S_ISDIR(status.st_mode)
                modified_ms = status.st_mtime_ns // 1_000_000
                content.append(
                    DirectoryEntry(entry.name, status.st_size, is_directory, modified_ms)
                )
        return content

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make_directory(self, path: str) -> None:
        make_private_directory(Path(path))

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        import shutil  # noqa: PLC0415 - 3 ms, with the first deleted directory.

        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        descriptor = _Descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor.number)


def _is_cached(descriptor: _Descriptor, start: int, stop: int) -> bool:
    from kohort.broker.storage.file_range import is_cached  # noqa: PLC0415 - ctypes, when it is needed.

    return is_cached(descriptor.number, start, stop)


OS_FILES = OsFileSystem()
"""The operating system's files. Shared, so that one limit on open descriptors covers all logs."""
