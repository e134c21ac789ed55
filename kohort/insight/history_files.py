"""Reads rebalance histories from files, line by line: exported histories (JSON lines), those in the
directory of `kohort watch`, or logs of brokers that record no history. Needs neither Spark nor
Java.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

from kohort.insight.broker_log.convert import Converter
from kohort.insight.broker_log.lines import message
from kohort.insight.errors import UsageError
from kohort.insight.output import announce

STDIN: Final = "-"

LINE_BYTES_MAX: Final = 16 << 20
"""Longer lines are truncated, so that they are invalid JSON and are quarantined."""

_ACTIVE: Final = "history.jsonl"
_OLDER: Final = "history-*.jsonl"
"""Pattern of the names of rotated files in the directory of `kohort watch`."""

Line: TypeAlias = tuple[int, bytes]
"""A line's number, from 0, and its text."""


def check(paths: Sequence[str]) -> None:
    """Raise UsageError if a file cannot be read, before any work starts."""
    for path in _files(paths):
        if path != STDIN:
            with _opened(path):
                pass


def histories(paths: Sequence[str], zone: tzinfo) -> Iterator[tuple[str, Iterator[Line]]]:
    """Yield the name and the lines of each file, in the given order; read each file's lines before
    the next.

    A file whose first line is an event in JSON is a history. Any other file is a log: its times are
    in `zone` unless they have an offset, and consecutive logs are read as one. Empty lines are
    skipped, and files whose names end in .gz are decompressed.

    Raises:
        UsageError: a file cannot be read.
    """
    converter = Converter(zone)
    name = ""
    for path in _files(paths):
        with _opened(path) as file:
            numbered_lines = _lines(file, path)
            first = next(numbered_lines, None)
            if first is None:
                continue
            lines = chain([first], numbered_lines)
            name = Path(path).name
            if _is_event(first[1]):
                yield name, lines
            else:
                texts = (line.decode(errors="replace") for _, line in lines)
                yield name, _numbered(converter, converter.records(texts))
    yield name, _numbered(converter, converter.end())
    warning = converter.warning()
    if warning is not None:
        announce(warning)


def _files(paths: Sequence[str]) -> Iterator[str]:
    """Yield the files in order; those of a directory in the order in which they were written."""
    for path in paths:
        directory = Path(path)
        if path == STDIN or not directory.is_dir():
            yield path
            continue
        files = [*sorted(directory.glob(_OLDER)), *directory.glob(_ACTIVE)]
        if not files:
            raise UsageError(f"{path}: no history in this directory: it has no file {_ACTIVE}")
        yield from map(str, files)


def _is_event(line: bytes) -> bool:
    """Whether a line is a history event; lines of a log may be JSON too."""
    text = line.decode(errors="replace").lstrip()
    return text.startswith("{") and message(text) == text


def _numbered(converter: Converter, records: Iterator[dict[str, object]]) -> Iterator[Line]:
    for record in records:
        yield converter.record_count - 1, json.dumps(record, separators=(",", ":")).encode()


def _lines(file: IO[bytes], path: str) -> Iterator[Line]:
    """Yield the lines that are not empty. Line numbers count empty lines too."""
    number = -1
    while line := _read_line(file, path):
        number += 1
        if not line.endswith(b"\n"):
            while (rest := _read_line(file, path)) and not rest.endswith(b"\n"):
                pass
        if stripped := line.strip():
            yield number, stripped


def _read_line(file: IO[bytes], path: str) -> bytes:
    try:
        return file.readline(LINE_BYTES_MAX)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_open(path))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        yield file


def _open(path: str) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.endswith(".gz") else Path(path).open("rb")
