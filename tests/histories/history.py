"""What clients have seen of a broker: data alone, for the checker to judge.

Every record's value is a number of its own, so that a value that is read names the transaction that
wrote it. Logs are numbered too: the checker knows no topics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class TransactionOutcome(Enum):
    """What a producer knows of its transaction."""

    COMMITTED = auto()
    """The broker has said so."""
    ABORTED = auto()
    """The broker has said so, or refused to commit, or was never asked to."""
    UNKNOWN = auto()
    """A commit was asked for, and the answer is lost: all or nothing."""


class Sent(NamedTuple):
    """A record, as its producer knows it."""

    log: int
    value: int
    offset: int | None = None
    """Offset of the record; None if it was never acknowledged."""
    source: int | None = None
    """The offset of a copy's original, in the log that the copier's position is in."""


class Move(NamedTuple):
    """How a copier's transaction changes its position in a log."""

    log: int
    start: int
    """What it has read from."""
    end: int
    """What it commits."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction, as its producer sees it; producers give them in the order of their lives."""

    transactional_id: str
    producer: str
    """One life of a producer: a successor, or a twin, of the same id has another name."""
    outcome: TransactionOutcome
    sends: tuple[Sent, ...]
    """In order."""
    polled: tuple[int, ...] = ()
    """Values that were read, committed ones alone, before the transaction ended."""
    move: Move | None = None
    """The copier's, if it is one of a copier."""
    asked_s: float = 0
    """When its commit was asked for, by a clock that polls have, too."""

    def __str__(self) -> str:
        values = ", ".join(f"{one.value} in {one.log}" for one in self.sends)
        return f"{self.outcome.name} transaction of {self.producer} ({values})"


@dataclass(frozen=True, slots=True)
class Poll:
    """An answer to a reader: all of a log that it may see between two offsets."""

    reader: str
    """A reader goes on where it was; who goes elsewhere has another name."""
    is_committed: bool
    """The isolation level."""
    log: int
    start: int
    end: int
    """Where the reader goes on."""
    records: tuple[tuple[int, int], ...]
    """Pairs of offset and value; of aborted transactions none, for who reads what is committed."""
    stable: int
    """The last stable offset that the broker told."""
    answered_s: float = 0
    """When the answer was there."""


class Observed(NamedTuple):
    """A committed position of the copiers, asked for while nothing was undecided."""

    log: int
    position: int
    """-1: none."""


@dataclass(slots=True)
class History:
    """A whole run; after its end nothing was undecided."""

    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    """Each reader's in order."""
    observed: list[Observed] = field(default_factory=list)
    """In order, the one at the end included, for each log that is copied."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """By log: what every lasting reader should have got to."""
    lasting: frozenset[str] = frozenset()
    """Readers that were there to the end."""
