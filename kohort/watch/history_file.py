"""A file with the records that a watcher has made, one per line: what ``--from`` of other commands
reads. It also says how far the watcher has come, so that a later run continues it.
"""

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

Json: TypeAlias = dict[str, Any]

_Origin: TypeAlias = tuple[int, str]
"""A partition of __consumer_offsets, and a group in it."""

_BEGIN: Final = b'{"schema":'
"""What all records begin with: a file that begins otherwise is no history cut short."""


class HistoryFile:
    """Appends records that it does not have yet. Its methods raise OSError."""

    def __init__(self, path: Path) -> None:
        """Read what the file has; a line that was cut short by a crash is removed.

        Raises:
            ValueError: it is not a history of this command.
        """
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        self._done: dict[_Origin, tuple[int, int]] = {}
        """The offset of the last record of each group, and how many records have this offset: the
        groups of a partition do not come in the order of their offsets."""
        self._added: dict[_Origin, tuple[int, int]] = {}
        """The same for this run."""
        self._file = path.open("a+b")
        try:
            self._file.truncate(self._read())
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> int:
        """Return the length of the complete lines."""
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if line.endswith(b"\n"):
                whole += len(line)
                self._note(line)
            elif not whole and not line.startswith(_BEGIN[: len(line)]):
                raise _foreign()
        return whole

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # It writes again what `add` could not write, and has raised.
        with suppress(OSError):
            self._file.close()

    def add(self, record: Json) -> bool:
        """Append a record; return False if an earlier run has."""
        origin, offset = _place(record)
        place = _counted(self._added, origin, offset)
        if place <= self._done.get(origin, (-1, 0)):
            return False
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        return True

    def _note(self, line: bytes) -> None:
        try:
            origin, offset = _place(json.loads(line))
        except (TypeError, KeyError, RecursionError) as error:
            raise _foreign() from error
        _counted(self._done, origin, offset)


def _place(record: Json) -> tuple[_Origin, int]:
    """Return the group of a record, and the offset at which the record was known."""
    observed = record["observed"]
    partition, group, offset = observed["partition"], record["group"], observed["offset"]
    if not (isinstance(partition, int) and isinstance(group, str) and isinstance(offset, int)):
        raise TypeError("not the place of a record")
    return (partition, group), offset


def _counted(
    places: dict[_Origin, tuple[int, int]], origin: _Origin, offset: int
) -> tuple[int, int]:
    """Note a record, and return its offset and its number among those with this offset."""
    last, count = places.get(origin, (-1, 0))
    place = offset, count + 1 if offset == last else 1
    places[origin] = max((last, count), place)
    return place


def _foreign() -> ValueError:
    return ValueError("not a history of `kohort watch`")
