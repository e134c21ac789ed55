"""The filter of a list of transactional ids.

Regular expressions of clients, matched by RE2, which never backtracks: the time is proportional to
the length of the text times that of the pattern, for any pattern. Kafka uses RE2/J, its Java port.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.states import TransactionState
from kohort.groups.consumer.regexes import compile_re2

MEMORY_BYTES_MAX: Final = 1 << 18
"""Memory limit for one compiled pattern, because repetitions are expanded. It limits the
steps for each character to some ten thousand."""


class PatternError(ValueError):
    """The pattern is invalid or too large."""


class Pattern:
    """A regular expression that a whole text has to match."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        try:
            self._compiled = compile_re2(text, MEMORY_BYTES_MAX)
        except ValueError as error:
            raise PatternError(str(error)) from error

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None


STATE_NAMES = frozenset(state.value for state in TransactionState)


class ListFilter(NamedTuple):
    """Conditions, all of which an id must meet."""

    states: Collection[str] = ()
    """Names of states, case-sensitive; an unknown name matches nothing."""
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    """Minimum time since the last transaction began, whether or not it has ended; ids without one
    match too. Negative: all."""
    pattern: Pattern | None = None
    """Must match the whole id."""

    def accepts(self, record: TransactionRecord, wall_ms: int) -> bool:
        if self.states and record.state.value not in self.states:
            return False
        if self.producer_ids and record.producer_id not in self.producer_ids:
            return False
        if self.duration_ms >= 0 and wall_ms - record.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.matches(record.transactional_id)
