"""Reads a broker's log files and yields the records of all its groups."""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import IO, Any, Final

from kohort.formats.text import counted
from kohort.insight.broker_log.lines import Fact, Preparing, begins_rebalance, read
from kohort.insight.broker_log.reasons import UNKNOWN, parse_reason
from kohort.insight.broker_log.story import GroupStory
from kohort.insight.errors import UsageError

_SHOWN_MAX: Final = 300
"""Maximum length of an unread line in a warning."""


@dataclass(slots=True)
class Converter:
    """Converts a broker's lines to records; all lines must be passed in order."""

    zone: tzinfo
    """Time zone of the broker's clock, for lines without an offset."""
    line_count: int = 0
    fact_count: int = 0
    """Number of lines about groups."""
    record_count: int = 0
    unread_count: int = 0
    """Number of lines that log the start of a rebalance in an unknown layout or with an unknown
    reason."""
    first_unread: str = ""
    _stories: dict[str, GroupStory] = field(default_factory=dict)

    def records(self, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the records that these lines complete."""
        for text in lines:
            self.line_count += 1
            line = read(text, self.zone)
            if begins_rebalance(text) and (line is None or not _is_explained(line.fact)):
                self.unread_count += 1
                self.first_unread = self.first_unread or text.strip()[:_SHOWN_MAX]
            if line is not None:
                self.fact_count += 1
                yield from self._counted(self._story(line.fact).add(line.fact, line.at_ms))

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the remaining records at the end of the log."""
        for story in self._stories.values():
            yield from self._counted(story.end())

    def warning(self) -> str | None:
        """Return a warning about unread lines; None if all were read."""
        if not self.unread_count:
            return None
        return (
            f"the start of a rebalance could not be parsed in {counted(self.unread_count, 'line')};"
            f" the first: {self.first_unread}"
        )

    @property
    def group_count(self) -> int:
        return len(self._stories)

    def _story(self, fact: Fact) -> GroupStory:
        story = self._stories.get(fact.group)
        if story is None:
            story = self._stories[fact.group] = GroupStory(fact.group)
        return story

    def _counted(self, records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for record in records:
            self.record_count += 1
            yield record


def _is_explained(fact: Fact) -> bool:
    """Whether the reason of a rebalance is known, or was not logged."""
    return (
        not isinstance(fact, Preparing)
        or fact.reason is None
        or parse_reason(fact.reason).kind != UNKNOWN
    )


def convert_files(paths: Sequence[Path], output: IO[str], zone: tzinfo) -> Converter:
    """Write the records as JSON lines; return the converter with its counts.

    Files are read in the given order, oldest first; those that end in .gz are decompressed.

    Raises:
        UsageError: a file cannot be read.
    """
    converter = Converter(zone)
    with ExitStack() as stack:
        # All files are opened before the first one is read, so that a wrong name fails at once.
        files = [stack.enter_context(_opened(path)) for path in paths]
        for file, path in zip(files, paths, strict=True):
            _write(converter.records(_read(file, path)), output)
    _write(converter.end(), output)
    return converter


def _opened(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", errors="replace")
        return path.open(errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _read(file: IO[str], path: Path) -> Iterator[str]:
    try:
        yield from file
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {error}") from error


def _write(records: Iterator[dict[str, Any]], output: IO[str]) -> None:
    for record in records:
        output.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
