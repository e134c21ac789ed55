"""Histories from files, line by line: exported ones as JSON lines, and the logs of brokers that
keep none. Needs neither Spark nor Java.
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
from kohort.insight.console import announce
from kohort.insight.errors import UsageError

STDIN: Final = "-"

LINE_BYTES_MAX: Final = 16 << 20
"""The rest of a longer line is not read; what is left is no JSON and goes into quarantine."""

Line: TypeAlias = tuple[int, bytes]
"""A line's number, from 0, and its text."""


def check(paths: Sequence[str]) -> None:
    """Raises UsageError for a file that cannot be read, before anything is started."""
    for path in paths:
        if path != STDIN:
            with _opened(path):
                pass


def histories(paths: Sequence[str], zone: tzinfo) -> Iterator[tuple[str, Iterator[Line]]]:
    """The name of each file and the events in it, in the order given; to be gone through in order.

    A file that begins with the JSON of an event is a history. Any other file is a log, whose times
    are of `zone` if they have no offset; consecutive logs are one log. Empty lines are skipped, and
    files that end in .gz are unpacked.

    Raises:
        UsageError: a file cannot be read.
    """
    converter = Converter(zone)
    name = ""
    for path in paths:
        with _opened(path) as file:
            found = _lines(file, path)
            first = next(found, None)
            if first is None:
                continue
            lines = chain([first], found)
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


def _is_event(line: bytes) -> bool:
    """Whether a line is an event of a history; a log may consist of JSON as well."""
    text = line.decode(errors="replace").lstrip()
    return text.startswith("{") and message(text) == text


def _numbered(converter: Converter, records: Iterator[dict[str, object]]) -> Iterator[Line]:
    for record in records:
        yield converter.record_count - 1, json.dumps(record, separators=(",", ":")).encode()


def _lines(file: IO[bytes], path: str) -> Iterator[Line]:
    """The lines that are not empty; numbers count all."""
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
