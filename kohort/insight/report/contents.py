"""The data of the page: plain rows of a bounded number of groups, rebalances and members.

Columns are those of the lake's tables; times are milliseconds since 1970, in columns that end in
`_at_ms`. Rows may come from Spark or from a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Row: TypeAlias = dict[str, Any]

GROUPS_SHOWN: Final = 12
"""Maximum number of groups shown in full."""
GROUPS_LISTED: Final = 200
"""Maximum number of groups in the first table."""
ROWS_SHOWN: Final = 20
"""Maximum number of rows in a table of members or partitions."""
ACTS_SHOWN: Final = 200
"""Maximum number of acts (such as restarts) listed for a group: the newest ones."""
SHOWN_MAX: Final = 200
"""Maximum number of rebalances of one group described by a sentence."""
SENTENCES_LEAST: Final = 40
SENTENCES_TOTAL: Final = 600
"""Maximum number of sentences on a page; with many groups, each has fewer than SHOWN_MAX."""
MARKS_MAX: Final = 1_000
"""Maximum number of rebalances on the timeline; the most expensive ones are shown."""
BINS_MAX: Final = 60
OWNED_PARTITIONS_MAX: Final = 24
OWNED_TIMES_MAX: Final = 600
"""Maximum number of ownership periods in the plot."""


def sentences_max(groups: int) -> int:
    """Return the maximum number of sentences of each group if there are `groups` groups."""
    return min(SHOWN_MAX, max(SENTENCES_LEAST, SENTENCES_TOTAL // max(groups, 1)))


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows shown, most important first, and the number of all rows."""

    rows: Sequence[Row] = ()
    total: int = 0

    @classmethod
    def first(cls, rows: Sequence[Row], most: int = ROWS_SHOWN) -> "Listed":
        return cls(rows[:most], len(rows))

    @property
    def left_out(self) -> int:
        return max(self.total - len(self.rows), 0)


@dataclass(frozen=True, slots=True)
class Ownership:
    times: Sequence[Row] = ()
    """topic, partition, state, owner, from_at_ms and until_at_ms, which is None for an open
    period."""
    from_at_ms: int = 0
    until_at_ms: int = 0
    partitions: int = 0
    """The number of partitions, including those not drawn."""
    about: str = ""
    """A sentence about the part of the history that the chart shows."""


@dataclass(slots=True, kw_only=True)
class GroupPage:
    cluster_id: str
    group: str
    figures: Row
    """Columns of `groups`: first_at_ms, last_at_ms, rebalance_count, avoided_count, needless_count,
    stopped_total_ms, stopped_longest_ms, missing_count."""
    causes: Sequence[Row] = ()
    """One row for each kind of act (such as restarts), by stopped time and rebalances, descending:
    kind, act_count, totals of the columns of `acts`, last_at_ms, and process_counts, a list of
    names and their numbers of acts."""
    acts: Listed = field(default_factory=Listed)
    """Rows of the table `acts`, the newest first."""
    late: Row | None = None
    """The result of `late_returns`: static members that returned soon after session expiry."""
    slow_members: Listed = field(default_factory=Listed)
    heartbeat_gaps: Listed = field(default_factory=Listed)
    unavailability: Listed = field(default_factory=Listed)
    flapping: Listed = field(default_factory=Listed)
    needless: Listed = field(default_factory=Listed)
    """Rows of the table `needless`: rebalances that moved no partition."""
    busiest: Row | None = None
    """The row of `storms` with the most rebalances."""
    bin_ms: int = 1
    by_time: Sequence[Row] = ()
    """at_ms, rebalance_count, stopped_total_ms of each interval of `bin_ms` with a rebalance."""
    marks: Listed = field(default_factory=Listed)
    """Rebalances, oldest first: sequence, started_at_ms, act (kind of act), stopped_total_ms."""
    sentences: Listed = field(default_factory=Listed)
    """Rebalances, oldest first: sequence, started_at_ms, sentence and stopped_total_ms."""
    ownership: Ownership = field(default_factory=Ownership)
    assignor: str | None = None
    """Protocol name of the last assignor; None if it is unknown."""
    is_consumer_group: bool = False
    """Whether the last rebalance is of a consumer group (KIP-848): its stopped time counts
    partitions, not members."""
    advice: Sequence[Row] = ()
    """Rows of `advice` for all settings that were tried."""


@dataclass(frozen=True, slots=True)
class Contents:
    groups: Sequence[GroupPage]
    """The groups shown in full, those with the most stopped time first."""
    others: Listed = field(default_factory=Listed)
    """cluster_id, group, rebalance_count, stopped_total_ms of the groups not shown in full."""


_BINS_MS: Final = tuple(
    1_000 * seconds
    for seconds in (1, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 604_800)
)


def bin_of(span_ms: int) -> int:
    """Return the width of a bar, in ms, for a history of length `span_ms`."""
    for bin_ms in _BINS_MS:
        if span_ms <= BINS_MAX * bin_ms:
            return bin_ms
    return -(-span_ms // BINS_MAX)


def costliest(rows: Sequence[Row], most: int) -> list[Row]:
    """Return the rebalances with the most stopped time, in chronological order."""
    ranked = sorted(rows, key=lambda row: (-(row["stopped_total_ms"] or 0), row["sequence"]))
    return sorted(ranked[:most], key=lambda row: int(row["sequence"]))
