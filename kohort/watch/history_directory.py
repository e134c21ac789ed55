"""A directory with the records that a watcher has made: ``--from`` of other commands reads it.

The records also show how far the watcher has read, so that a later run continues there. They are
lines of JSON in segments: `history.jsonl` is appended to until it has `SEGMENT_BYTES`, then renamed
to `history-N.jsonl`. The oldest of these segments beyond `SEGMENTS_MAX` is deleted.
"""

import fcntl
import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final, Self

from kohort.watch.store import HistoryStore, StoreError

SEGMENT_BYTES: Final = 64 << 20
SEGMENTS_MAX: Final = 8
"""Maximum number of renamed segments. A start reads all of them, at 100 MB per second."""

_ACTIVE: Final = "history.jsonl"
_LOCK: Final = "lock"

_BEGIN: Final = b'{"schema":'
"""The first bytes of every record: they identify a history whose only line was cut short."""


class HistoryDirectory(HistoryStore):
    """Appends the records that the directory does not have yet."""

    def __init__(self, path: Path, cluster_id: str | None) -> None:
        """Read the stored records; remove a line that was cut short by a crash.

        Raises:
            OSError
            ValueError: `path` is not a directory, is of another cluster, or is in use by another
                watcher.
        """
        super().__init__()
        if path.exists() and not path.is_dir():
            raise ValueError(f"not a directory; a file can be continued as DIRECTORY/{_ACTIVE}")
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        with ExitStack() as stack:
            _acquire(stack.enter_context((path / _LOCK).open("a+")), cluster_id)
            self._segments = sorted(path.glob("history-*.jsonl"))
            for segment in self._segments:
                self._read(segment)
            self._size = self._read(path / _ACTIVE)
            """Bytes of the complete lines in the active segment."""
            self._active = stack.enter_context((path / _ACTIVE).open("ab", buffering=0))
            self._active.truncate(self._size)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
        self._active.close()

    def flush(self) -> None:
        """Append the offered records. Raises StoreError."""
        for record in self._backlog.missing():
            try:
                self._append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            except OSError as error:
                raise StoreError(f"{self._path}: {error.strerror}") from error
            self._backlog.note(record)
        self._backlog.missing()

    def _append(self, line: bytes) -> None:
        if self._size and self._size + len(line) > SEGMENT_BYTES:
            self._roll()
        try:
            written = 0
            while written < len(line):
                written += self._active.write(line[written:])
        except BaseException:
            with suppress(OSError):
                self._active.truncate(self._size)
            raise
        self._size += len(line)

    def _roll(self) -> None:
        last = int(self._segments[-1].stem.rpartition("-")[2]) if self._segments else 0
        segment = self._path / f"history-{last + 1:06}.jsonl"
        (self._path / _ACTIVE).rename(segment)
        self._segments.append(segment)
        self._active.close()
        self._active = (self._path / _ACTIVE).open("ab", buffering=0)
        self._size = 0
        while len(self._segments) > SEGMENTS_MAX:
            self._segments.pop(0).unlink(missing_ok=True)

    def _read(self, segment: Path) -> int:
        """Read a segment, if it exists; return the length of its complete lines."""
        whole = 0
        with suppress(FileNotFoundError), segment.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    whole += len(line)
                    try:
                        self._note(line)
                    except ValueError as error:
                        raise _foreign(segment) from error
                elif not whole and not line.startswith(_BEGIN[: len(line)]):
                    raise _foreign(segment)
        return whole


def _acquire(lock: IO[str], cluster_id: str | None) -> None:
    """Lock the directory until `lock` is closed. Raises ValueError if another process has locked
    it, or it has the history of another cluster.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            "another `kohort watch` is writing to it; end that, or name another directory"
        ) from None
    lock.seek(0)
    known = lock.read()
    if not known:
        lock.write(cluster_id or "")
        lock.flush()
    elif cluster_id is not None and known != cluster_id:
        raise ValueError(
            f"it has the history of cluster {known}, this one is {cluster_id}; name another"
            " directory"
        )


def _foreign(segment: Path) -> ValueError:
    return ValueError(f"{segment.name} is not a history of `kohort watch`")
