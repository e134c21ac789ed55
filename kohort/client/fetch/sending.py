"""Sends the fetches that were planned, and has their answers taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from kohort.client.clock import now_ms
from kohort.client.core.fetch.buffers import FetchBuffers
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.plan import FetchPlan, PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.wire import Asked, SentFetch, fetch_request, version_for
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.answers import FetchAnswers
from kohort.client.fetch.sources import FetchSources
from kohort.client.fetch.troubles import Troubles
from kohort.client.net.cluster import FETCHING, Cluster
from kohort.client.net.connection import Connection, DisconnectedError
from kohort.protocol.messages.fetch import FetchRequest

logger = logging.getLogger(__name__)


class _Promise(NamedTuple):
    """A request on its way."""

    connection: Connection
    sent: SentFetch
    answer: asyncio.Future[Any]


class FetchSender:
    """That of one fetcher."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        plan: FetchPlan,
        buffers: FetchBuffers,
        answers: FetchAnswers,
        troubles: Troubles,
        sources: FetchSources,
        config: FetchConfig,
        *,
        on_metadata_wanted: Callable[[], None],
        on_answered: Callable[[], None],
    ) -> None:
        """`on_answered`: a broker has nothing to do for us any more."""
        self._cluster = cluster
        self._positions = positions
        self._plan = plan
        self._buffers = buffers
        self._answers = answers
        self._troubles = troubles
        self._sources = sources
        self._config = config
        self._on_metadata_wanted = on_metadata_wanted
        self._on_answered = on_answered
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, fetch: PlannedFetch) -> None:
        """Have it sent, and its answer taken.

        Where there is a connection it is sent at once: a task would begin when the loop has time,
        and who handles records may keep it until those that are here have run out.
        """
        address = self._cluster.broker(fetch.node_id)
        connection = None if address is None else self._cluster.connected(address, FETCHING)
        promise: _Promise | None = None
        if connection is not None:
            # Met again by the task, whatever it is: there it is told to who polls, and the broker
            # does not stay marked as busy.
            with suppress(Exception):
                promise = self._send(fetch, connection)
        name = f"fetch from broker {fetch.node_id}"
        task = asyncio.get_running_loop().create_task(self._fetch(fetch, promise), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._fetch_ended)

    def _send(self, fetch: PlannedFetch, connection: Connection) -> _Promise | None:
        """None: there is nothing to ask any more."""
        sent = self._what_to_ask(fetch, connection.versions.best(FetchRequest))
        if not sent.asked:
            return None
        config = self._config
        request = fetch_request(
            sent,
            partition_bytes=config.max_partition_fetch_bytes,
            bytes_max=fetch.bytes_max,
            min_bytes=config.fetch_min_bytes if fetch.may_wait else 0,
            max_wait_ms=config.fetch_max_wait_ms if fetch.may_wait else 0,
            isolation_level=config.isolation_level,
            rack=self._sources.rack_to_tell(sent.asked),
        )
        return _Promise(connection, sent, connection.send(request, version=sent.version))

    async def _fetch(self, fetch: PlannedFetch, promise: _Promise | None) -> None:
        node_id = fetch.node_id
        began_ms = now_ms()
        try:
            if promise is None:
                address = self._cluster.broker(node_id)
                if address is None:
                    raise DisconnectedError("newer metadata does not have this broker any more")
                promise = self._send(fetch, await self._cluster.connection(address, FETCHING))
            if promise is not None:
                connection, sent, future = promise
                timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
                answer = await connection.answer(future, FetchRequest, timeout_ms)
                self._answers.take(node_id, sent, answer)
        except DisconnectedError as error:
            logger.debug("fetching from broker %d: %s", node_id, error)
            self._troubles.unserved(fetch.partitions, began_ms)
            for partition in fetch.partitions:
                self._sources.failed(partition, node_id)
            self._on_metadata_wanted()
        except Exception:
            self._troubles.unserved(fetch.partitions, began_ms)
            raise
        finally:
            self._plan.answered(node_id)
        # Here, not when the task has ended: that is told a round of the loop later.
        self._on_answered()

    def _fetch_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            # Nothing that was to be expected.
            self._troubles.failed(failure)
            self._on_answered()

    def _what_to_ask(self, fetch: PlannedFetch, best_version: int) -> SentFetch:
        """The plan may be older than a connection took to be made."""
        asked: dict[TopicPartition, Asked] = {}
        for partition in fetch.partitions:
            leader = self._cluster.leader(partition)
            state = self._positions.find(partition)
            if leader is None or state is None or self._sources.node(partition) != fetch.node_id:
                continue
            if state.position is not None and state.is_readable:
                offset = self._buffers.fetch_offset(partition, state)
                is_leader = leader.node_id == fetch.node_id
                asked[partition] = Asked(offset, leader.epoch, state.fence, is_leader)
        topics = {partition.topic for partition in asked}
        topic_ids = {topic: self._cluster.topics[topic].topic_id for topic in topics}
        return SentFetch(version_for(best_version, topic_ids), asked, topic_ids)
