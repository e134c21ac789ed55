"""Tracks the records of a history that any watcher has stored, and those to write.

A record is identified by its place: its group, the offset at which it was known, and its number
among the records with this offset, as one stored generation may show several rebalances. Watchers
of a cluster make the same records, whenever they start. Only the sequence numbers depend on how
much of the past a watcher has read, so the numbers of the store are continued.
"""

from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]

_Origin: TypeAlias = tuple[int, str]
"""A partition of __consumer_offsets, and a group in it. Groups of a partition do not come in the
order of their offsets."""

_NUMBERED: Final = ("sequence", "follows", "superseded_by")


class _Place(NamedTuple):
    offset: int
    number: int
    """Among the records with this offset, from 1."""


class _Waiting(NamedTuple):
    origin: _Origin
    place: _Place
    record: Json


class Backlog:
    """The records that are not written yet, and the last stored place of each group."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._made: dict[_Origin, _Place] = {}
        """The last record that was offered, of each group."""
        self._stored: dict[_Origin, tuple[_Place, int]] = {}
        """Place and sequence number of the last stored record, of each group."""
        self._sequences: dict[str, int] = {}
        """The highest stored sequence number of each group."""
        self._shifts: dict[str, int] = {}
        """The difference between stored and own sequence numbers, by group, if known."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, record: Json) -> None:
        """Record that the store has a record; repetitions by a watcher that was paused are ignored.

        Raises:
            TypeError, KeyError: it is not a record of a history.
        """
        group, sequence = record["group"], record["sequence"]
        if not (isinstance(group, str) and isinstance(sequence, int)):
            raise TypeError("not a record of a history")
        self._sequences[group] = max(sequence, self._sequences.get(group, 0))
        if record.get("observed") is None:
            return  # A broker made it.
        origin, offset = _origin(record)
        place, last = self._stored.get(origin, (_Place(-1, 0), 0))
        if offset > place.offset:
            self._stored[origin] = _Place(offset, 1), sequence
        elif offset == place.offset and sequence > last:
            self._stored[origin] = _Place(offset, place.number + 1), sequence

    def offer(self, record: Json) -> Json:
        """Add the next record, unless it is stored; return it with the store's sequence number."""
        origin, offset = _origin(record)
        last = self._made.get(origin, _Place(-1, 0))
        place = _Place(offset, last.number + 1 if offset == last.offset else 1)
        self._made[origin] = place
        waiting = _Waiting(origin, place, record)
        if self._is_stored(waiting):
            return _shifted(record, self._shifts.get(origin[1], 0))
        self._waiting.append(waiting)
        return self._numbered(record)

    def missing(self) -> list[Json]:
        """Return the records to write, in order; `note` those that were written."""
        self._waiting = [waiting for waiting in self._waiting if not self._is_stored(waiting)]
        return [self._numbered(waiting.record) for waiting in self._waiting]

    def drop_unplaced(self) -> None:
        """Drop the records that only polls show: another watcher's have other places."""
        self._waiting = [waiting for waiting in self._waiting if waiting.origin[0] >= 0]

    def _is_stored(self, waiting: _Waiting) -> bool:
        place, sequence = self._stored.get(waiting.origin, (_Place(-1, 0), 0))
        if waiting.place == place:
            self._shifts[waiting.origin[1]] = sequence - waiting.record["sequence"]
        return waiting.place <= place

    def _numbered(self, record: Json) -> Json:
        """Return the record with the next sequence number of the store, or with its own if that is
        higher: then records between the two are lost.
        """
        group = record["group"]
        shift = self._shifts.get(group)
        if shift is None:
            shift = max(self._sequences.get(group, 0) + 1 - record["sequence"], 0)
            self._shifts[group] = shift
        return _shifted(record, shift)


def _origin(record: Json) -> tuple[_Origin, int]:
    """Return the group of a record, and the offset at which it was known."""
    observed = record["observed"]
    partition, group, offset = observed["partition"], record["group"], observed["offset"]
    if not (isinstance(partition, int) and isinstance(group, str) and isinstance(offset, int)):
        raise TypeError("not the place of a record")
    return (partition, group), offset


def _shifted(record: Json, shift: int) -> Json:
    if not shift:
        return record
    numbers = {name: record.get(name) for name in _NUMBERED}
    return record | {name: number + shift for name, number in numbers.items() if number is not None}
