"""Converts the lines of a broker's log to the history records of all its groups."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final

from kohort.formats.text import counted
from kohort.insight.broker_log.lines import Fact, Preparing, begins_rebalance, read
from kohort.insight.broker_log.reasons import UNKNOWN, parse_reason
from kohort.insight.broker_log.story import GroupStory

_SHOWN_MAX: Final = 300
"""Maximum length of an unparsed line in a warning."""


@dataclass(slots=True)
class Converter:
    """Converts a broker's log lines to history records; pass all lines in order."""

    zone: tzinfo
    """Time zone of the broker's clock, for lines whose time has no UTC offset."""
    record_count: int = 0
    unread_count: int = 0
    """Number of lines that log the start of a rebalance in an unknown layout or with an unknown
    reason."""
    first_unread: str = ""
    _stories: dict[str, GroupStory] = field(default_factory=dict)

    def records(self, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the history records of the rebalances that end in these lines."""
        for text in lines:
            line = read(text, self.zone)
            if begins_rebalance(text) and (line is None or not _is_explained(line.fact)):
                self.unread_count += 1
                self.first_unread = self.first_unread or text.strip()[:_SHOWN_MAX]
            if line is not None:
                yield from self._counted(self._story(line.fact).add(line.fact, line.at_ms))

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the remaining records at the end of the log."""
        for story in self._stories.values():
            yield from self._counted(story.end())

    def warning(self) -> str | None:
        """Return a warning about unparsed lines; None if all were parsed."""
        if not self.unread_count:
            return None
        return (
            f"the start of a rebalance could not be parsed in {counted(self.unread_count, 'line')};"
            f" the first: {self.first_unread}"
        )

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
    """Whether the line has no rebalance reason, or one that `parse_reason` knows."""
    return (
        not isinstance(fact, Preparing)
        or fact.reason is None
        or parse_reason(fact.reason).kind != UNKNOWN
    )
