"""The HTTP port of a watcher, on a thread of its own with an event loop.

The thread that follows the groups passes it all changes as immutable values (`News`), so that no
lock is needed, and waits until they are applied: otherwise changes could accumulate.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import time
from typing import Any, Final, Self, TypeAlias

from kohort.admin.cluster import Cluster
from kohort.broker.http.server import HttpServer
from kohort.broker.runtime.clock import SystemClock
from kohort.groups.history.json_form import from_json
from kohort.watch.core.commits import Commit
from kohort.watch.follow import Follower
from kohort.watch.listen import Listen
from kohort.watch.poll_only import PollFollower
from kohort.watch.positions import PositionsReader
from kohort.watch.seen import News, encoded, text_of
from kohort.watch.site import Sources, WatchSite

Json: TypeAlias = dict[str, Any]

PORT_TRIES: Final = 20
"""Number of ports to try, upward from the default, if none was given."""

RECORDS_TOGETHER: Final = 200
"""Maximum number of records that are accumulated before they are published."""

CLOSE_WAIT_S: Final = 2.0


class WatchService:
    """Serves over HTTP what a `Follower` has read; the follower's thread calls the methods.
    Leaving the `with` block ends the thread that `start` started.
    """

    def __init__(self, follower: Follower | PollFollower, cluster: Cluster, listen: Listen) -> None:
        """Request the cluster id. Raises DisconnectedError."""
        self._follower = follower
        self._listen = listen
        self.port = listen.port
        """The port of the HTTP server; valid after `start`."""
        self._cluster_id = cluster.metadata([]).cluster_id or ""
        self._positions = PositionsReader(self._committed, cluster.another)
        self._records: list[Json] = []
        self._running: set[str] = set()
        """Groups that had a rebalance in progress when they were last published."""
        self._is_live = False
        self._started: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._site: WatchSite | None = None
        self._thread = threading.Thread(target=self._run, name="kohort-watch-http", daemon=True)

    # Called by the thread that follows the groups.

    def start(self) -> None:
        """Begin to serve. Raises OSError if the port cannot be used."""
        self._thread.start()
        self.port = self._started.result()
        self._follower.watcher.changes.keeps_groups = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(CLOSE_WAIT_S)

    @property
    def url(self) -> str:
        host = self._listen.host or "localhost"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def has_moved(self) -> bool:
        """Whether it listens on another port, because the default one was taken."""
        return self._listen.port not in {self.port, 0}

    def add(self, record: Json) -> None:
        self._records.append(record)
        if len(self._records) >= RECORDS_TOGETHER:
            self.publish()

    def go_live(self) -> None:
        """Publish the history that has been read; from now on, count rebalances in the metrics."""
        self.publish()
        self._is_live = self._follower.watcher.changes.keeps_events = True

    def publish(self) -> None:
        """Pass the changes since the last call to the HTTP port's thread; wait until applied."""
        watcher = self._follower.watcher
        records, self._records = self._records, []
        taken = watcher.changes.take()
        running = self._running_records(taken.groups | self._running)
        self._running = {group_id for group_id, text in running.items() if text is not None}
        news = News(
            records=[encoded(record) for record in records],
            counted=[from_json(record) for record in records] if self._is_live else [],
            views={group_id: watcher.view(group_id) for group_id in taken.groups},
            running=running,
            events=taken.events,
            removed=taken.removed,
        )
        if any(news):
            assert self._site is not None
            asyncio.run_coroutine_threadsafe(self._site.apply(news), self._loop).result()

    def _running_records(self, groups: Iterable[str]) -> dict[str, bytes | None]:
        now_ms = int(time() * 1000)
        records = {
            group_id: self._follower.watcher.running(group_id, now_ms) for group_id in groups
        }
        return {
            group_id: None if record is None else text_of(record)
            for group_id, record in records.items()
        }

    # Called by the thread of the event loop, and by threads that it starts.

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        sources = Sources(
            self._cluster_id, self._positions.read, lambda: self._follower.lag, self._not_ready
        )
        with ThreadPoolExecutor(1, "kohort-watch-pages") as executor:
            self._site = site = WatchSite(sources, SystemClock(), executor)
            host, port, is_given = self._listen
            names = host, socket.gethostname()
            server = HttpServer(site.pages(), hosts=names, hosts_setting="the host of --http")
            await server.start(host, port, tries=1 if is_given else PORT_TRIES)
            self._started.set_result(server.port)
            try:
                await self._end.wait()
            finally:
                await server.close()
                await site.close()

    def _not_ready(self) -> str | None:
        if not self._is_live:
            return f"reading the past: {self._follower.lag} records are left"
        return self._follower.trouble

    def _committed(self) -> Sequence[Commit]:
        return self._follower.watcher.positions()
