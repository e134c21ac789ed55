"""The kinds of what may not be, and how one is told."""

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """Kinds of anomalies; the names are Adya's and Jepsen's, where they have one."""

    G0 = "write cycle"
    """Transactions of one id lie in two logs in different orders, or mixed up in one."""
    G1A = "aborted read"
    """What was aborted was read as committed."""
    G1B = "intermediate read"
    """What was undecided was stable, or read as committed."""
    G1C = "circular information flow"
    """Transactions follow each other in a circle, by what they wrote and what they read."""
    LOST_WRITE = "lost write"
    """A record of a committed transaction is nowhere."""
    DUPLICATE = "duplicate"
    """A record is in a log twice, or in two logs."""
    TORN = "torn transaction"
    """A part of a transaction is there."""
    PHANTOM = "phantom"
    """A record that no producer has sent, at least not there."""
    CHANGED = "changed record"
    """An offset holds one thing now and another then."""
    POLL_SKIP = "poll skip"
    """A reader went past a record that it should have got."""
    NONMONOTONIC_POLL = "non-monotonic poll"
    """A reader was sent back, or ahead, of where it was."""
    NONMONOTONIC_SEND = "non-monotonic send"
    """A producer's later record has the lower offset."""
    STABLE_WENT_BACK = "last stable offset went back"
    """A reader was told a lower one than before."""
    UNSEEN = "unseen at the end"
    """A lasting reader was never given a committed record."""
    OFFSET_WITHOUT_RECORDS = "offset without its records"
    """A copier's position is committed, and what its transaction wrote is not there."""
    RECORDS_WITHOUT_OFFSET = "records without their offset"
    """The reverse; the next copier copies again."""
    COPIED_NOT_ONCE = "not copied exactly once"
    """A committed original has no copy, or more than one."""


class Anomaly(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"
