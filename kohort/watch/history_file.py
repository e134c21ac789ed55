"""A file with the records that a watcher has made, one per line: what ``--from`` of other commands
reads. It also says how far the watcher has come, so that a later run continues it.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

Json: TypeAlias = dict[str, Any]


class HistoryFile:
    """Appends records that it does not have yet. Its methods raise OSError."""

    def __init__(self, path: Path) -> None:
        """Read what the file has; a line that was cut short by a crash is removed.

        Raises:
            ValueError: it is not a history of this command.
        """
        self._done: dict[int, int] = {}
        """The offset of the last record, by partition of __consumer_offsets."""
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
                self._note(json.loads(line))
        return whole

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, record: Json) -> bool:
        """Append a record; return False if an earlier run has."""
        observed = record["observed"]
        if observed["offset"] <= self._done.get(observed["partition"], -1):
            return False
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        return True

    def _note(self, record: Json) -> None:
        try:
            observed = record["observed"]
            partition, offset = observed["partition"], observed["offset"]
        except (TypeError, KeyError) as error:
            raise ValueError("not a history of `kohort watch`") from error
        self._done[partition] = max(offset, self._done.get(partition, -1))
