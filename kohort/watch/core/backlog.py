"""Tracks which history records any watcher has stored, and which are still to be written.

A record is identified by its place: its group, the offset in __consumer_offsets at which it became
known, and its number among the history records of this offset, because one stored generation may
complete several. All watchers of a cluster make the same records, except that the sequence numbers
depend on how much of the past a watcher has read. So a watcher continues the numbers in the store.
"""

from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]

_Origin: TypeAlias = tuple[int, str]
"""The partition of __consumer_offsets, and the group, that a history record is about. Offsets are
compared only within a group: records of different groups are not made in offset order."""

_NUMBERED: Final = ("sequence", "follows", "superseded_by")


class _Place(NamedTuple):
    offset: int
    number: int
    """The record's number among its group's history records with this offset, from 1."""


class _Waiting(NamedTuple):
    origin: _Origin
    place: _Place
    record: Json


class Backlog:
    """The history records that are not written yet, and the last stored one of each group."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._made: dict[_Origin, _Place] = {}
        """Offset and number of the last offered record, by partition and group."""
        self._stored: dict[_Origin, tuple[_Place, int]] = {}
        """Offset, number and sequence number of the last stored record, by partition and group."""
        self._sequences: dict[str, int] = {}
        """The highest stored sequence number, by group."""
        self._shifts: dict[str, int] = {}
        """How much higher the stored sequence numbers are than those of this watcher, by group."""

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, record: Json) -> None:
        """Track a stored record; ignore repetitions, which a paused watcher may have stored.

        Raises:
            TypeError, KeyError: `record` is not a record of a history.
        """
        group, sequence = record["group"], record["sequence"]
        if not (isinstance(group, str) and isinstance(sequence, int)):
            raise TypeError("not a record of a history")
        self._sequences[group] = max(sequence, self._sequences.get(group, 0))
        if record.get("observed") is None:
            return  # Made by a broker, not by a watcher.
        origin, offset = _origin(record)
        place, last = self._stored.get(origin, (_Place(-1, 0), 0))
        if offset > place.offset:
            self._stored[origin] = _Place(offset, 1), sequence
        elif offset == place.offset and sequence > last:
            self._stored[origin] = _Place(offset, place.number + 1), sequence

    def offer(self, record: Json) -> Json:
        """Add the next record, unless the store has it; return it with the sequence number that it
        has or will get in the store.
        """
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
        """Return the records to write, in order; pass each to `note` once it is written."""
        self._waiting = [waiting for waiting in self._waiting if not self._is_stored(waiting)]
        return [self._numbered(waiting.record) for waiting in self._waiting]

    def drop_unplaced(self) -> None:
        """Drop the records made from polls alone: their `offset` is the time of a poll, so it does
        not show which of them another watcher has stored.
        """
        self._waiting = [waiting for waiting in self._waiting if waiting.origin[0] >= 0]

    def _is_stored(self, waiting: _Waiting) -> bool:
        place, sequence = self._stored.get(waiting.origin, (_Place(-1, 0), 0))
        if waiting.place == place:
            self._shifts[waiting.origin[1]] = sequence - waiting.record["sequence"]
        return waiting.place <= place

    def _numbered(self, record: Json) -> Json:
        """Return the record with the sequence number after the last one in the store, or with its
        own number if that is higher: then the records in between are lost.
        """
        group = record["group"]
        shift = self._shifts.get(group)
        if shift is None:
            shift = max(self._sequences.get(group, 0) + 1 - record["sequence"], 0)
            self._shifts[group] = shift
        return _shifted(record, shift)


def _origin(record: Json) -> tuple[_Origin, int]:
    """Return a record's partition and group, and the offset (or poll time) that completed it."""
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
