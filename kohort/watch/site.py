"""A watcher's pages about groups, its console and its metrics, on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.broker.assembly.metrics_page import MetricsPage, Scraped
from kohort.broker.console.lag_history import LagHistory
from kohort.broker.console.paths import group_console_pages
from kohort.broker.console.timed_cache import TimedCache
from kohort.broker.groups_seen import Readable, no_shares
from kohort.broker.http.health import NotReady, health_pages
from kohort.broker.http.lazy import group_pages
from kohort.broker.http.messages import AnyPage, HttpRequest, ResponseOrStream
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.client.net.thread_call import run_in_thread
from kohort.groups.events import Certainty
from kohort.groups.history.model import AvoidedRecord, HistoryRecord
from kohort.watch.positions import Positions
from kohort.watch.seen import News, WatchedGroups, WatchedRebalances

if TYPE_CHECKING:
    from kohort.broker.groups_seen import Position

logger = logging.getLogger(__name__)

POSITIONS_WAIT_S: Final = 3.0
"""How long a page waits for new positions; then it shows the last known positions."""


class Sources(NamedTuple):
    """What the pages read from the thread that watches the groups."""

    cluster_id: str
    positions: Callable[[], Positions]
    """Reads the positions; it blocks."""
    lag: Callable[[], int]
    """Number of records that the thread has not read yet."""
    not_ready: NotReady


class WatchSite:
    """The pages, and the data behind them. Used only on the event loop."""

    def __init__(self, sources: Sources, clock: Clock, executor: Executor) -> None:
        self.groups = WatchedGroups(clock)
        self.history = WatchedRebalances()
        self.clock = clock
        self.executor = executor
        self.holding = None
        self.shares = no_shares
        self.lags = LagHistory()
        """Stays empty: a trend needs regular reads, but positions are read only for open pages."""
        self._sources = sources
        self._metrics = RebalanceMetrics()
        self._unclear_count = 0
        self._scrapes = MetricsPage(self._new_exposition, executor)
        self._located = TimedCache(self._wait_positions, clock)
        self._locating: asyncio.Task[None] | None = None

    def readable(self, topic: str, index: int) -> Readable | None:
        return self.groups.readable(topic, index)

    def pages(self) -> dict[str, AnyPage]:
        groups: dict[str, AnyPage] = {
            "/metrics": self._scrapes.answer,
            **group_pages(lambda: (self.groups, self.history, no_shares), self.executor),
            **group_console_pages(self, _NoAges()),
        }
        return {
            **health_pages(self._sources.not_ready, lambda: ()),
            **{path: self._with_positions(page) for path, page in groups.items()},
        }

    async def close(self) -> None:
        """End the work of requests that are not answered yet."""
        await self._scrapes.close()
        if self._locating is not None:
            self._locating.cancel()
            await asyncio.wait([self._locating])

    # Changes.

    async def apply(self, news: News) -> None:
        """Update the pages and metrics. Must not be called again before it returns."""
        time_slice = Slice(self.clock)
        for record in news.records:
            self.history.add(record)
            await time_slice.pause()
        for group_id, view in news.views.items():
            self.groups.update(group_id, view)
            await time_slice.pause()
        for group_id, text in news.running.items():
            self.history.run(group_id, text)
        # Events first: they create the counters of a group, to which its records are added.
        for group_id, event, now in news.events:
            if event.__class__ in self._metrics.observed:
                self._metrics.observe(group_id, event, now)
            await time_slice.pause()
        for parsed in news.counted:
            self._count(parsed)
        for group_id in news.removed:
            self.history.remove(group_id, self.clock.wall_ms())

    def _count(self, record: HistoryRecord) -> None:
        self._metrics.on_record(record)
        is_rebalance = not isinstance(record, AvoidedRecord)
        self._unclear_count += is_rebalance and record.trigger.certainty is Certainty.UNCLEAR

    # Metrics.

    def _new_exposition(self) -> Scraped:
        from kohort.watch.exposition import WatchExposition  # noqa: PLC0415 - costs 50 ms.

        return WatchExposition(
            self._sources.cluster_id,
            self.groups,
            self.history,
            self._metrics,
            unclear=lambda: self._unclear_count,
            lag=self._sources.lag,
        )

    # Positions.

    def _with_positions(self, page: AnyPage) -> AnyPage:
        """Make a page wait, at most POSITIONS_WAIT_S, until the positions are new enough."""

        async def answer(request: HttpRequest) -> ResponseOrStream:
            if self._locating is None or self._locating.done():
                loop = asyncio.get_running_loop()
                self._locating = loop.create_task(self._locate(), name="positions")
            await asyncio.wait([self._locating], timeout=POSITIONS_WAIT_S)
            return await page(request)

        return answer

    async def _locate(self) -> None:
        try:
            await self._located.wait()
        except Exception:
            logger.exception("Internal error: cannot read the groups' offsets")

    async def _wait_positions(self) -> None:
        self.groups.locate(await run_in_thread(self._sources.positions, "kohort-watch-positions"))


class _NoAges:
    """Ages of unread records: unknown to a watcher, which does not read the groups' topics."""

    async def wait_ages(self, wanted: Sequence[Position], time_slice: Slice) -> list[int | None]:
        """Return the age of each position's first unread record: 0 without lag, else None."""
        del time_slice
        return [0 if position.lag == 0 else None for position in wanted]
