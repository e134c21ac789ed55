"""Looks up the offsets of partitions that are to begin at an end of their log, or at a time.

It goes on in the background for as long as it takes, so that partitions that have a position can be
read meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from client.core.backoff import Backoff
from client.core.errors import ConsumerError, OffsetOutOfRangeError
from client.core.offsets import UNKNOWN_EPOCH, OffsetSpec
from client.core.partitions import TopicPartition
from client.core.positions import Positions
from client.fetch_config import FetchConfig
from client.net.cluster import Cluster
from client.offset_lookup import look_up
from protocol.errors import ErrorCode
from protocol.types import ZERO_UUID


class OffsetResets:
    """Those of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        *,
        on_metadata_wanted: Callable[[], None],
        on_found: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_found`: positions may have come. `on_failed`: to be told to the user."""
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_metadata_wanted = on_metadata_wanted
        self._on_found = on_found
        self._on_failed = on_failed
        self._task: asyncio.Task[None] | None = None
        self._leaderless: Collection[TopicPartition] = ()
        """Those that could not be looked up because nobody knew whom to ask."""
        self._is_led = asyncio.Event()
        """One of them has a leader by now."""

    def begin(self) -> None:
        """See that whatever awaits a reset is looked up. To be called when metadata came, too."""
        if self._task is None:
            if self._positions.awaiting_reset():
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(), name="look up offsets")
                self._task.add_done_callback(self._ended)
        elif any(self._cluster.leader(one) is not None for one in self._leaderless):
            self._is_led.set()

    async def close(self) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (failure := task.exception()) is not None:
            # Nothing that was to be expected. It begins again when something else happens.
            self._on_failed(failure)
        else:
            self._on_found()

    async def _run(self) -> None:
        """Until all that await it have a position."""
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
        while specs := self._positions.awaiting_reset():
            leaderless = [one for one in specs if self._cluster.leader(one) is None]
            try:
                found, failed = await look_up(
                    self._cluster, specs, config.isolation_level, config.request_timeout_ms
                )
            except ConsumerError as error:
                # To be told, and to be tried again, as a fetch that is refused.
                self._on_failed(error)
                found, failed = {}, dict.fromkeys(specs, error.code)
            for partition, offset in found.items():
                if offset is None:
                    self._positions.reset_found(partition, specs[partition], None, UNKNOWN_EPOCH)
                else:
                    at, _, epoch = offset
                    self._positions.reset_found(partition, specs[partition], at, epoch)
            if found:
                self._on_found()
            if failed:
                self._on_metadata_wanted()
                await self._wait_led(leaderless, backoff.fail() / 1000)

    async def _wait_led(self, leaderless: Collection[TopicPartition], backoff_s: float) -> None:
        """The time until what failed is tried again; over when one of these has a leader, who has
        not failed yet.
        """
        self._leaderless = leaderless
        self._is_led.clear()
        self.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(backoff_s):
                await self._is_led.wait()
        self._leaderless = ()


class TopicIds:
    """Notices topics that were deleted and created again: they have other records at the same
    offsets.
    """

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def changed(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[str]:
        """Of the topics of these, those that have another id than at the last call."""
        found = []
        topics = {partition.topic for partition in partitions}
        for gone in self._known.keys() - topics:
            del self._known[gone]
        for topic in topics:
            info = cluster.topics.get(topic)
            if info is None or info.topic_id == ZERO_UUID:
                continue
            if self._known.setdefault(topic, info.topic_id) != info.topic_id:
                self._known[topic] = info.topic_id
                found.append(topic)
        return found


def begin_anew(
    positions: Positions, topic: str, spec: OffsetSpec | None
) -> dict[TopicPartition, ConsumerError]:
    """Positions in a topic that was created again are reset, or are errors if nothing says how."""
    errors: dict[TopicPartition, ConsumerError] = {}
    for partition in positions.assigned:
        position = positions.position(partition)
        if partition.topic != topic or position is None:
            continue
        if spec is not None:
            positions.seek_to(partition, spec)
        else:
            positions.seek(partition, position)
            errors[partition] = OffsetOutOfRangeError(
                f"{topic} was deleted and created again, so that offset {position} means another"
                " record, and auto_offset_reset is none: seek to an offset",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
    return errors
