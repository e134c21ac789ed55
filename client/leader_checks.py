"""Asks new leaders whether they have what a position stands behind (OffsetForLeaderEpoch).

The rules are in `client.core.truncation`. It goes on in the background for as long as it takes;
what is not in doubt is read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final

from client.core.backoff import Backoff
from client.core.errors import ConsumerError, error_for
from client.core.offsets import OffsetSpec
from client.core.partitions import TopicPartition
from client.core.positions import Positions
from client.core.truncation import Doubt, EpochEnd, LeaderChecks, LeaderEpoch
from client.fetch_config import FetchConfig
from client.net.cluster import Cluster
from client.net.connection import DisconnectedError
from client.net.versions import UnsupportedVersionError
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

VERSION_MIN: Final = 3
"""Before it only other brokers may ask (KIP-320 wants a right to the whole cluster)."""

_CONSUMER: Final = -1
_FINAL: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""What neither time nor newer metadata mends."""

Doubts = Mapping[TopicPartition, Doubt]


class PositionChecks:
    """Those of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        *,
        default_reset: Callable[[], OffsetSpec | None],
        on_metadata_wanted: Callable[[], None],
        on_changed: Callable[[], None],
        on_failed: Callable[[TopicPartition, ConsumerError], None],
    ) -> None:
        """`on_changed`: positions were answered for. `on_failed`: to be told to the user, unless
        the partition's position moves before.
        """
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._default_reset = default_reset
        self._on_metadata_wanted = on_metadata_wanted
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._rules = LeaderChecks(positions)
        self._looked_at: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> bool:
        """Look at all positions, if something has changed, and have questions asked; whether there
        are new doubts, so that what was fetched may be void. Quick if there is nothing to do.
        """
        now = (self._cluster.version, self._positions.version)
        if now == self._looked_at:
            return False
        has_doubts = self._rules.look(self._leader_of)
        self._looked_at = (self._cluster.version, self._positions.version)
        if self._task is None and self._rules.doubts():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="check positions")
            self._task.add_done_callback(self._ended)
        return has_doubts

    async def close(self) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _leader_of(self, partition: TopicPartition) -> LeaderEpoch | None:
        leader = self._cluster.leader(partition)
        return None if leader is None else LeaderEpoch(leader.node_id, leader.epoch)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("checking positions", exc_info=failure)
        self._on_changed()

    async def _run(self) -> None:
        """Until nothing is in doubt."""
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
        while doubts := self._rules.doubts():
            by_leader: dict[int, dict[TopicPartition, Doubt]] = defaultdict(dict)
            for partition, doubt in doubts.items():
                by_leader[doubt.leader.node_id][partition] = doubt
            asking = [self._ask(node_id, some) for node_id, some in by_leader.items()]
            are_answered = await asyncio.gather(*asking)
            self._on_changed()
            if not all(are_answered):
                self._on_metadata_wanted()
                await asyncio.sleep(backoff.fail() / 1000)

    async def _ask(self, node_id: int, doubts: Doubts) -> bool:
        """Whether there is nothing to be asked again."""
        try:
            address = self._cluster.broker(node_id)
            if address is None:
                return False
            connection = await self._cluster.connection(address)
            version = connection.versions.best(OffsetForLeaderEpochRequest)
            if version < VERSION_MIN:
                raise UnsupportedVersionError("the broker is too old to be asked")
            request = _request(doubts)
            timeout_ms = self._config.request_timeout_ms
            answer = await connection.call(request, version=version, timeout_ms=timeout_ms)
        except UnsupportedVersionError as error:
            logger.debug("positions are not checked: %s", error)
            for partition, doubt in doubts.items():
                self._rules.believed(partition, doubt)
            return True
        except ConsumerError as error:
            logger.debug("asking broker %d about its epochs: %s", node_id, error)
            if not isinstance(error, DisconnectedError):
                self._on_failed(next(iter(doubts)), error)
            return False
        return self._take_answer(answer, doubts)

    def _take_answer(self, answer: Any, doubts: Doubts) -> bool:  # noqa: ANN401
        left = dict(doubts)
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.topic, one.partition)
                code = ErrorCode(one.error_code)
                if partition not in left:
                    continue
                if code is ErrorCode.NONE:
                    end = EpochEnd(one.leader_epoch, one.end_offset)
                    if self._decide(partition, left[partition], end):
                        del left[partition]
                elif code in _FINAL:
                    error = error_for(code, f"asking about the epochs of {topic.topic}")
                    self._on_failed(partition, error)
        return not left

    def _decide(self, partition: TopicPartition, doubt: Doubt, end: EpochEnd) -> bool:
        error = self._rules.answered(partition, doubt, end, self._default_reset())
        if error is not None:
            self._on_failed(partition, error)
            return False
        if end.offset < doubt.offset:
            logger.warning(
                "%s-%d: its log was cut off before offset %d, up to which it was read; going on at"
                " %s",
                *partition,
                doubt.offset,
                end.offset if end.offset >= 0 else "where auto_offset_reset says",
            )
        return True


def _request(doubts: Doubts) -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=topic,
            partitions=[
                OffsetForLeaderPartition(
                    partition=one.partition,
                    current_leader_epoch=doubts[one].leader.epoch,
                    leader_epoch=doubts[one].leader_epoch,
                )
                for one in group
            ],
        )
        for topic, group in groupby(sorted(doubts), lambda one: one.topic)
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
