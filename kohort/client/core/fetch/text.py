"""Records as text: what `unpack_text` makes of them, in the form that a `TextForm` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Self

NULL: Final = b"null"
"""An absent key, value or header value."""


class TextForm(NamedTuple):
    """The parts of a record's text, in order."""

    marks: str
    """A letter for each part: s value, k key, h headers, t topic, p partition, o offset, T
    timestamp in milliseconds, d timestamp as a date, S and K bytes of value and key (-1: absent), l
    the next of `literals`."""
    literals: tuple[bytes, ...]
    as_date: Callable[[int], bytes] = b"%d".__mod__
    """Turns a timestamp into a date: what it is like is not for here to say."""


class LastRecord(NamedTuple):
    """What a consumer needs of the last record of a text, to move its position past it."""

    offset: int
    leader_epoch: int


class Text:
    """Consecutive records of one partition as text. Takes the place of a list of records: it has a
    length, a last element, and can be extended.
    """

    __slots__ = ("_count", "_last", "parts")

    def __init__(self, parts: list[bytes], count: int, last_offset: int, leader_epoch: int) -> None:
        """Text of `count` records, of which the last has `last_offset`; if there are none, the last
        is not asked for.
        """
        self.parts: Final = parts
        """The text, in one piece for each batch."""
        self._count = count
        self._last = LastRecord(last_offset, leader_epoch)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> LastRecord:
        assert index == -1, "only the last record is known"
        assert self._count, "there are no records"
        return self._last

    def __iadd__(self, more: Text) -> Self:
        self.parts.extend(more.parts)
        self._count += len(more)
        self._last = more[-1]
        return self
