"""A survey of all groups: the values by which lists are filtered and sorted, and the groups that
read each topic.

A survey of ten thousand groups takes a few tenths of a second, in slices. So all pages that need a
survey within a short time share one (`kohort.broker.console.timed_cache`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.console.lag import wait_total_lag
from kohort.broker.console.problems import is_hanging, is_held
from kohort.broker.console.source import GroupsSource
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.runtime.slices import Slice
from kohort.groups.description import GroupDescription
from kohort.groups.kinds import GroupKind

Json: TypeAlias = dict[str, Any]

GROUPS_MAX: Final = 20_000
"""Maximum number of groups in a survey: the first in `group_ids`. Lists also show the total."""

READERS_MAX: Final = 100
"""Maximum groups listed for each topic."""

SORTED_TOGETHER: Final = 1_000
"""Number of rows sorted at once, which takes less than a millisecond."""


class Row(NamedTuple):
    group: GroupDescription
    lag: int | None
    """Lag in records; None if no position's lag is known."""
    urgency: int
    """2 if a rebalance hangs, 1 if the lag rises or a transaction holds the group back, otherwise
    0."""


class Survey(NamedTuple):
    rows: Sequence[Row]
    total: int
    """Number of groups, including those beyond `GROUPS_MAX`."""
    readers: dict[str, list[str]]
    """By topic: groups that subscribe to it or have offsets in it, at most `READERS_MAX` each."""
    reader_counts: Counter[str]
    states: Counter[str]


class Surveyor:
    def __init__(self, source: GroupsSource) -> None:
        self._source = source

    async def wait_look(self) -> Survey:
        """Run a survey in time slices, so groups are read at slightly different times."""
        source = self._source
        time_slice = Slice(source.clock, SLICE_MS)
        rows: list[Row] = []
        readers: dict[str, list[str]] = {}
        counts: Counter[str] = Counter()
        states: Counter[str] = Counter()
        ids = source.groups.group_ids()
        for group_id in ids[:GROUPS_MAX]:
            group = source.groups.living_group(group_id)
            if group is None:
                continue
            lag = await wait_total_lag(group, source.readable, time_slice)
            described = group.describe()
            shares = source.shares() if described.kind is GroupKind.SHARE else None
            if shares is not None:
                of_group = shares.partitions.of_group(group_id)
                lag = sum(map(shares.partitions.lag, of_group)) if of_group else None
            urgency = int(source.lags.trend(group_id) is not None or is_held(group, source, lag))
            if described.is_rebalancing and is_hanging(
                group.describe_waiting(), source.groups.now()
            ):
                urgency = 2
            rows.append(Row(described, lag, urgency))
            states[described.state] += 1
            for topic in {*group.offsets.topics(), *(group.subscribed_topics() or ())}:
                counts[topic] += 1
                listed = readers.setdefault(topic, [])
                if len(listed) < READERS_MAX:
                    listed.append(group_id)
            await time_slice.pause()
        return Survey(rows, len(ids), readers, counts, states)


Key: TypeAlias = Callable[[Row], Any]

ORDERS: Final[dict[str, Key]] = {
    "problem": lambda row: -row.urgency,
    "group": lambda _: 0,
    "state": lambda row: row.group.state,
    "members": lambda row: row.group.member_count,
    "lag": lambda row: -1 if row.lag is None else row.lag,
    "generation": lambda row: row.group.generation,
}
"""Keys of the sort orders; rows with equal keys are sorted by group id."""


async def wait_chosen(
    rows: Sequence[Row],
    chosen: Callable[[Row], bool],
    order: str,
    *,
    down: bool,
    span: slice,
    time_slice: Slice,
) -> tuple[list[Row], int]:
    """Return a page of the rows for which `chosen` is true, and the number of all these rows. Runs
    in time slices: chunks are sorted one by one, and merged only up to the end of `span`.
    """
    order_key = ORDERS[order]

    def key(row: Row) -> tuple[Any, str]:
        return order_key(row), row.group.group_id

    runs: list[list[Row]] = []
    for start in range(0, len(rows), SORTED_TOGETHER):
        run = [row for row in rows[start : start + SORTED_TOGETHER] if chosen(row)]
        run.sort(key=key, reverse=down)
        runs.append(run)
        await time_slice.pause()
    merged = merge(*runs, key=key, reverse=down)
    page: list[Row] = []
    for number, row in enumerate(islice(merged, span.stop)):
        if number >= span.start:
            page.append(row)
        await time_slice.pause()
    return page, sum(map(len, runs))
