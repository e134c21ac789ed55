"""An in-memory file system that can fill up, fail, write partially and lose power.

It behaves like :class:`OsFileSystem` unless a failure is injected; the tests compare the two. It
models these properties of a real disk:

- A write is in the cache at once, and on the disk only after `sync`. At a power loss, each unsynced
  write may be kept, lost, or kept in some of its 512-byte sectors.
- A created, renamed or removed name is on the disk only after `sync_directory`; at a power loss,
the
  first few of the unsynced changes of each directory survive, as with a metadata journal.
- A failed `sync` is reported once. The cache keeps the unwritten data but marks it as clean, so the
  next sync succeeds without writing it: this is why a failed fsync must never be retried.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from kohort.broker.storage.filesystem import Buffer, DirectoryEntry

SECTOR_BYTES = 512

Operation: TypeAlias = Literal[
    "create", "pread", "pwritev", "truncate", "sync", "sync_directory", "rename", "remove"
]
Pick: TypeAlias = Callable[[int], int]
"""Returns a number below its argument, such as `Random(seed).randrange`."""
_Write: TypeAlias = tuple[int, bytes]
_Change: TypeAlias = _Write | int
"""A write, or the size of a truncation."""


@dataclass(slots=True, eq=False)
class _Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)

    def settle(self) -> None:
        """Drop unsynced writes: reads return the content on the disk."""
        self.unsynced.clear()
        self.cached = bytearray(self.durable)


@dataclass(slots=True, eq=False)
class _Fault:
    operation: Operation
    suffix: str
    number: int
    after: int
    times: int


_NameChange: TypeAlias = tuple[str, _Inode | None]
"""A path and its new file, None if it was removed."""


def _apply(content: bytearray, change: _Change) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    if not data:
        return
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + len(data)] = data


class SimulatedFileSystem:
    """An in-memory file system. Paths are strings with slashes; "" and "/" always exist."""

    def __init__(self) -> None:
        self.space_left: int | None = None
        """Bytes by which files may still grow; None for no limit."""
        self.write_bytes_max: int | None = None
        """Maximum bytes that one pwritev writes; None for all."""
        self.wall_ms = 0
        """The modification time of every file."""
        self.on_failure: Callable[[str], None] | None = None
        """Called with the path when a fault makes an operation fail. Not copied by `copy`."""
        self.on_operation: Callable[[Operation], None] | None = None
        """Called before each operation, and prevents it by raising. Not copied by `copy`."""
        self._faults: list[_Fault] = []
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._unsynced_names: dict[str, list[list[_NameChange]]] = {}
        self._directories: dict[str, None] = {"": None, "/": None}
        """Directories in the order of creation, so that two runs list them identically."""

    # Interface for tests.

    def fail(
        self, operation: Operation, *, suffix: str, number: int, after: int = 0, times: int = 1
    ) -> None:
        """Let an operation on paths with this suffix raise OSError with this errno.

        The first `after` calls still succeed, and the next `times` fail.
        """
        self._faults.append(_Fault(operation, suffix, number, after, times))

    def clear_faults(self) -> None:
        """Let every operation succeed again."""
        self._faults.clear()

    def lose_power(self, pick: Pick) -> None:
        """Lose unsynced writes, or parts of them; open handles must not be used afterwards."""
        self._lose_names(pick)
        for inode in self._names.values():
            for change in inode.unsynced:
                _apply_partly(inode.durable, change, pick)
            inode.settle()

    def lose_ends(self, pick: Pick) -> None:
        """Lose power on a disk that writes in order: each file loses some last writes."""
        self._lose_names(lambda count: count - 1 if pick(4) else pick(count))
        for inode in self._names.values():
            count = len(inode.unsynced)
            kept = count if pick(3) == 0 else pick(count + 1)
            for change in inode.unsynced[:kept]:
                _apply(inode.durable, change)
            if kept < count:
                _apply_partly(inode.durable, inode.unsynced[kept], pick)
            inode.settle()

    def _lose_names(self, pick: Pick) -> None:
        for directory, groups in self._unsynced_names.items():
            for changes in groups[: pick(len(groups) + 1)]:
                self._change_durable(changes)
            groups.clear()
            assert directory in self._directories
        self._names = dict(self._durable_names)

    def copy(self) -> "SimulatedFileSystem":
        """Return a copy, as another process would find the files; later changes are not shared."""
        inodes: dict[int, _Inode] = {}

        def copied(inode: _Inode) -> _Inode:
            if id(inode) not in inodes:
                inodes[id(inode)] = _Inode(
                    bytearray(inode.cached), bytearray(inode.durable), list(inode.unsynced)
                )
            return inodes[id(inode)]

        other = SimulatedFileSystem()
        other.space_left = self.space_left
        other.write_bytes_max = self.write_bytes_max
        other.wall_ms = self.wall_ms
        other._faults = [replace(fault) for fault in self._faults]
        other._names = {path: copied(inode) for path, inode in self._names.items()}
        other._durable_names = {path: copied(inode) for path, inode in self._durable_names.items()}
        other._unsynced_names = {
            directory: [
                [(path, inode and copied(inode)) for path, inode in changes] for changes in groups
            ]
            for directory, groups in self._unsynced_names.items()
        }
        other._directories = dict(self._directories)
        return other

    def paths(self) -> list[str]:
        return list(self._names)

    def fingerprint(self) -> int:
        """Return a hash of the content, valid within this process."""
        return hash(tuple((path, bytes(inode.cached)) for path, inode in self._names.items()))

    def flip(self, path: str, position: int, mask: int) -> None:
        """Change bits of one byte, in the cache and on the disk."""
        inode = self._inode(path)
        inode.cached[position] ^= mask
        if position < len(inode.durable):
            inode.durable[position] ^= mask
        if inode.unsynced:
            inode.unsynced.append((position, bytes(inode.cached[position : position + 1])))

    # Interface for storage.

    def file(self, path: str) -> "SimulatedFile":
        return SimulatedFile(path, self)

    def create(self, path: str) -> "SimulatedFile":
        self.check("create", path)
        inode = _Inode()
        self._names[path] = inode
        self._note_names([(path, inode)])
        return SimulatedFile(path, self)

    def entries(self, directory: str) -> list[DirectoryEntry]:
        if directory not in self._directories:
            raise _error(errno.ENOENT, directory)
        prefix = directory + "/"
        files = [
            DirectoryEntry(path[len(prefix) :], len(inode.cached), False, self.wall_ms)
            for path, inode in self._names.items()
            if path.startswith(prefix) and path.rfind("/") == len(directory)
        ]
        return files + [
            DirectoryEntry(path.rpartition("/")[2], 0, True, self.wall_ms)
            for path in self._directories
            if path not in {"", "/"} and path.rpartition("/")[0] == directory
        ]

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def make_directory(self, path: str) -> None:
        while path not in self._directories:
            if path in self._names:
                raise _error(errno.EEXIST, path)
            self._directories[path] = None
            path = path.rpartition("/")[0]

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        if source in self._directories:
            self._rename_directory(source, target)
            return
        inode = self._inode(source)
        self._names[target] = self._names.pop(source)
        self._note_names([(target, inode), (source, None)])

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._inode(path)
        del self._names[path]
        self._note_names([(path, None)])

    def remove_tree(self, path: str) -> None:
        if path not in self._directories:
            raise _error(errno.ENOENT, path)
        for name in [name for name in self._names if name.startswith(path + "/")]:
            self.remove(name)
        self._directories = {
            name: None
            for name in self._directories
            if name != path and not name.startswith(path + "/")
        }
        self._unsynced_names = {
            name: groups for name, groups in self._unsynced_names.items() if self.exists(name)
        }
        for name in [name for name in self._durable_names if name.startswith(path + "/")]:
            del self._durable_names[name]

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        for changes in self._unsynced_names.pop(path, []):
            self._change_durable(changes)

    # Interface for open files.

    def check(self, operation: Operation, path: str) -> None:
        """Raise OSError if a fault applies to the operation."""
        if self.on_operation is not None:
            self.on_operation(operation)
        for fault in self._faults:
            if fault.operation == operation and path.endswith(fault.suffix):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                if self.on_failure is not None:
                    self.on_failure(path)
                raise _error(fault.number, path)

    def cached(self, path: str) -> bytearray:
        """Return the content as reads see it; do not change it."""
        return self._inode(path).cached

    def change(self, path: str, change: _Change) -> None:
        inode = self._inode(path)
        _apply(inode.cached, change)
        inode.unsynced.append(change)

    def room_for(self, path: str, position: int, length: int) -> int:
        """Return how many of the `length` bytes fit, and reserve the space for them."""
        size = len(self._inode(path).cached)
        if self.write_bytes_max is not None:
            length = min(length, self.write_bytes_max)
        if self.space_left is None:
            return length
        growth = max(0, position + length - size)
        fitting = length - max(0, growth - self.space_left)
        if fitting <= 0:
            raise _error(errno.ENOSPC, path)
        self.space_left -= max(0, position + fitting - size)
        return fitting

    def sync_file(self, path: str) -> None:
        """Make the cached content durable, or fail and mark it as clean."""
        inode = self._inode(path)
        try:
            self.check("sync", path)
        except OSError:
            inode.unsynced.clear()
            raise
        for change in inode.unsynced:
            _apply(inode.durable, change)
        inode.unsynced.clear()

    def drop_cached(self, path: str) -> None:
        """Replace the clean cached content by the content on the disk."""
        inode = self._inode(path)
        inode.cached = bytearray(inode.durable)
        for change in inode.unsynced:
            _apply(inode.cached, change)

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise _error(errno.ENOENT, path)
        return inode

    def _note_names(self, changes: list[_NameChange]) -> None:
        directory = changes[0][0].rpartition("/")[0]
        if directory not in self._directories:
            raise _error(errno.ENOENT, directory)
        self._unsynced_names.setdefault(directory, []).append(changes)

    def _change_durable(self, changes: list[_NameChange]) -> None:
        for path, inode in changes:
            if inode is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = inode

    def _rename_directory(self, source: str, target: str) -> None:
        """Rename a directory. The new name is durable at once, because only topic deletion renames
        directories.
        """

        def moved(path: str) -> str:
            inside = path == source or path.startswith(source + "/")
            return target + path[len(source) :] if inside else path

        self._directories = {moved(path): None for path in self._directories}
        self._names = {moved(path): inode for path, inode in self._names.items()}
        self._durable_names = {moved(path): inode for path, inode in self._durable_names.items()}
        self._unsynced_names = {
            moved(directory): [[(moved(path), inode) for path, inode in group] for group in groups]
            for directory, groups in self._unsynced_names.items()
        }


class SimulatedFile:
    """A handle on a file of the simulated file system."""

    __slots__ = ("_files", "path")

    def __init__(self, path: str, files: SimulatedFileSystem) -> None:
        self.path = path
        self._files = files

    def size(self) -> int:
        return len(self._files.cached(self.path))

    def range(self, start: int, stop: int) -> None:
        """Return None: there is no file descriptor for sendfile."""
        del start, stop

    def is_cached(self, start: int, stop: int) -> bool:
        del start, stop
        return False

    def pread(self, length: int, position: int) -> bytes:
        self._files.check("pread", self.path)
        return bytes(self._files.cached(self.path)[position : position + length])

    def pread_cached(self, length: int, position: int) -> bytes:
        return self.pread(length, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._files.check("pwritev", self.path)
        data = b"".join(buffers)
        taken = self._files.room_for(self.path, position, len(data))
        self._files.change(self.path, (position, data[:taken]))
        return taken

    def truncate(self, size_bytes: int) -> None:
        self._files.check("truncate", self.path)
        freed = self.size() - size_bytes
        self._files.change(self.path, size_bytes)
        if self._files.space_left is not None:
            self._files.space_left += freed

    def sync(self) -> None:
        self._files.sync_file(self.path)

    def drop_cached(self) -> None:
        self._files.drop_cached(self.path)

    def close(self) -> None:
        """Do nothing: there is no descriptor to close."""


def _apply_partly(content: bytearray, change: _Change, pick: Pick) -> None:
    fate = pick(3)
    if fate == 0:
        return
    if fate == 1 or isinstance(change, int):
        _apply(content, change)
        return
    position, data = change
    start = 0
    while start < len(data):
        stop = min(len(data), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        if pick(2):
            _apply(content, (position + start, data[start:stop]))
        start = stop


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
