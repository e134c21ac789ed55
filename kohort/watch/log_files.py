"""The logs of brokers, read as they are written."""

import gzip
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import tzinfo
from pathlib import Path
from typing import IO, Final, Self, TypeAlias

from kohort.insight.broker_log.lines import read, read_departure
from kohort.watch.core.logged import Logs

STDIN: Final = "-"
STEP_BYTES: Final = 16 << 20
"""Maximum bytes of each log that `read_new` reads in one call; `read_past` has no limit."""

LINE_MAX: Final = 1 << 20
"""Longer lines are skipped: the group coordinator logs none of this length."""

IDLE_S: Final = 1.0
"""`read_past` ends for a pipe if no more bytes arrive for this time."""

_CHUNK: Final = 1 << 18


_Source: TypeAlias = Callable[[float | None], bytes]
"""Returns new bytes; b"" at the end of the source, or if a pipe has no data for the given seconds
(None: no limit)."""


class _File:
    """A file followed by name, across rotations too, as ``tail -F`` does."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("rb")
        stack.callback(self.close)

    def close(self) -> None:
        self._file.close()

    def chunk(self, wait_s: float | None) -> bytes:
        del wait_s
        return self._file.read(_CHUNK) or (self._file.read(_CHUNK) if self._reopen() else b"")

    def _reopen(self) -> bool:
        """Continue at the start of a file that was replaced or truncated; return whether it was."""
        was = os.fstat(self._file.fileno())
        try:
            now = self._path.stat()
            if (now.st_dev, now.st_ino) != (was.st_dev, was.st_ino):
                new = self._path.open("rb")
                self._file.close()
                self._file = new
                return True
        except OSError:
            return False  # Between the two steps of a rotation.
        if now.st_size < self._file.tell():
            self._file.seek(0)
            return True
        return False


def _compressed(file: gzip.GzipFile) -> _Source:
    """Return a source of the contents of a compressed file, which is not written any more."""

    def chunk(_: float | None) -> bytes:
        with suppress(EOFError):  # The file was truncated.
            return file.read(_CHUNK)
        return b""

    return chunk


def _pipe(descriptor: int) -> _Source:
    def chunk(wait_s: float | None) -> bytes:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return os.read(descriptor, _CHUNK) if ready else b""

    return chunk


class _Lines:
    def __init__(self, source: _Source) -> None:
        self._source = source
        self._rest = b""
        self._is_skipping = False

    def read(self, wait_s: float | None, bytes_max: float) -> Iterator[str]:
        count = 0
        while count < bytes_max:
            chunk = self._source(wait_s)
            if not chunk:
                return
            count += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                if not self._is_skipping:
                    yield line.decode(errors="replace")
                self._is_skipping = False
            if len(self._rest) > LINE_MAX:
                self._rest, self._is_skipping = b"", True


class LogFiles:
    """Reads several brokers' logs into a `Logs`, line by line. The methods raise OSError."""

    def __init__(self, names: Sequence[str], zone: tzinfo) -> None:
        """`names` are paths of files, or `STDIN`; `zone` applies to times without an offset."""
        self._zone = zone
        self._lines: list[_Lines] = []
        with ExitStack() as stack:
            for name in names:
                self._lines.append(_Lines(_opened(name, stack)))
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def read_past(self, logs: Logs, *, to_end: bool) -> None:
        """Read the lines written so far; with `to_end`, read pipes to their end."""
        self._read(logs, None if to_end else IDLE_S, float("inf"))

    def read_new(self, logs: Logs) -> None:
        self._read(logs, 0.0, STEP_BYTES)

    def _read(self, logs: Logs, wait_s: float | None, bytes_max: float) -> None:
        for lines in self._lines:
            for text in lines.read(wait_s, bytes_max):
                line = read(text, self._zone) or read_departure(text, self._zone)
                if line is not None:
                    logs.add(line)


def _opened(name: str, stack: ExitStack) -> _Source:
    if name == STDIN:
        return _pipe(sys.stdin.fileno())
    path = Path(name)
    if path.suffix == ".gz":
        return _compressed(stack.enter_context(gzip.open(path)))
    if path.exists() and not path.is_file() and not path.is_dir():
        return _pipe(stack.enter_context(path.open("rb", buffering=0)).fileno())
    return _File(path, stack).chunk
