"""Validates positions with new leaders (OffsetForLeaderEpoch).

The rules are in `kohort.client.core.fetch.truncation`. Validation runs in the background;
partitions that need none are read meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import Any, Final

from kohort.client.clock import loop_ms, wall_ms
from kohort.client.core.errors import ConsumerError, error_for
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.state import FetchState
from kohort.client.core.fetch.truncation import EpochEnd, EpochQuestion, LeaderChecks
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.leader_rounds import LeaderRounds
from kohort.client.net.cluster import Cluster
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

VERSION_MIN: Final = 3
"""Lowest OffsetForLeaderEpoch version for clients; lower ones need cluster permission (KIP-320)."""

_CONSUMER: Final = -1
_FINAL: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors that neither time nor newer metadata resolves."""

EpochQuestions = Mapping[TopicPartition, EpochQuestion]


class PositionChecks:
    """Validates the positions of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        state: FetchState,
        config: FetchConfig,
        *,
        on_metadata_wanted: Callable[[], None],
        on_changed: Callable[[], None],
    ) -> None:
        """`state` receives failures. `on_changed` is called after a response or a failure."""
        self._cluster = cluster
        self._positions = positions
        self._state = state
        self._config = config
        self._rules = LeaderChecks(positions)
        self._looked_at: tuple[int, int] | None = None
        self._cut: dict[TopicPartition, tuple[EpochQuestion, EpochEnd]] = {}
        """Known truncations, each with the leader query that revealed it, until the user seeks."""
        self._on_metadata_wanted = on_metadata_wanted
        self._rounds: LeaderRounds[EpochQuestion] = LeaderRounds(
            "check positions",
            self._ask,
            leader_of=self._asked_leader,
            backoff_ms=(config.retry_backoff_ms, config.retry_backoff_max_ms),
            on_due=self._ask_doubted,
            on_answered=self._answered,
            on_metadata_wanted=self._want_metadata,
            on_failed=_log_failure,
        )
        self._on_changed = on_changed

    def begin(self) -> bool:
        """Check all positions if metadata or a position has changed; start the needed requests.
        Returns whether a change puts a position in doubt, so that records fetched from it may be
        invalid. Cheap when there is nothing to do.
        """
        now = (self._cluster.version, self._positions.version)
        if now == self._looked_at:
            return False
        has_doubts = self._rules.look(self._cluster.leader)
        self._looked_at = (self._cluster.version, self._positions.version)
        self._ask_doubted()
        return has_doubts

    async def close(self) -> None:
        await self._rounds.close()

    def _asked_leader(self, partition: TopicPartition) -> int | None:
        """Return the leader that the pending check queries; newer metadata may name another."""
        doubt = self._rules.doubts().get(partition)
        return None if doubt is None else doubt.leader.node_id

    def _ask_doubted(self) -> None:
        self._rounds.begin(self._rules.doubts())

    def _answered(self) -> None:
        self._ask_doubted()  # The leader may have changed again meanwhile.
        self._on_changed()

    async def _ask(self, node_id: int, doubts: EpochQuestions) -> Collection[TopicPartition]:
        """Query this leader once. Return the partitions still in doubt, truncated ones included."""
        cut = {tp: self._cut[tp][1] for tp in doubts if self._is_cut(tp, doubts)}
        for partition, end in cut.items():
            self._decide(partition, doubts[partition], end)
        doubts = {tp: doubt for tp, doubt in doubts.items() if tp not in cut}
        return {*cut, *(await self._ask_leader(node_id, doubts) if doubts else ())}

    def _is_cut(self, partition: TopicPartition, doubts: EpochQuestions) -> bool:
        """Whether the leader has already answered this check with a truncation."""
        known = self._cut.get(partition)
        return known is not None and known[0] == doubts[partition]

    def _want_metadata(self) -> None:
        doubts = self._rules.doubts()
        self._cut = {tp: known for tp, known in self._cut.items() if tp in doubts}
        if not all(self._is_cut(tp, doubts) for tp in doubts):
            self._on_metadata_wanted()

    async def _ask_leader(self, node_id: int, doubts: EpochQuestions) -> Collection[TopicPartition]:
        began_ms = loop_ms()
        try:
            address = self._cluster.broker(node_id)
            if address is None:
                self._state.note_unanswered(doubts.keys(), began_ms)
                return doubts
            connection = await self._cluster.connection(address)
            version = connection.versions.best(OffsetForLeaderEpochRequest)
            if version < VERSION_MIN:
                raise UnsupportedVersionError("the broker is too old for OffsetForLeaderEpoch")
            request = _request(doubts)
            timeout_ms = self._config.request_timeout_ms
            answer = await connection.call(request, version=version, timeout_ms=timeout_ms)
        except UnsupportedVersionError as error:
            logger.debug("positions are not validated: %s", error)
            for partition, doubt in doubts.items():
                self._rules.believed(partition, doubt)
            return ()
        except ConsumerError as error:
            logger.debug("asking broker %d about its epochs: %s", node_id, error)
            if isinstance(error, DisconnectedError):
                self._state.note_unanswered(doubts.keys(), began_ms)
            else:
                self._state.report(next(iter(doubts)), error, loop_ms())
            return doubts
        return self._take_answer(answer, doubts)

    def _take_answer(self, answer: Any, doubts: EpochQuestions) -> Collection[TopicPartition]:  # noqa: ANN401
        left = dict(doubts)
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.topic, result.partition)
                code = ErrorCode(result.error_code)
                if partition not in left:
                    continue
                if code is ErrorCode.NONE:
                    end = EpochEnd(result.leader_epoch, result.end_offset)
                    if self._decide(partition, left[partition], end):
                        del left[partition]
                elif code in _FINAL:
                    error = error_for(code, f"asking about the epochs of {topic.topic}")
                    self._state.report(partition, error, loop_ms())
        return left

    def _decide(self, partition: TopicPartition, doubt: EpochQuestion, end: EpochEnd) -> bool:
        default_reset = self._state.default_reset(wall_ms())
        error = self._rules.answered(partition, doubt, end, default_reset)
        if error is not None:
            self._cut[partition] = doubt, end
            self._state.report(partition, error, loop_ms())
            return False
        if end.offset < doubt.offset:
            logger.warning(
                "%s-%d: the log was truncated below offset %d, up to which it was read;"
                " continuing at %s",
                *partition,
                doubt.offset,
                end.offset if end.offset >= 0 else "the offset of auto_offset_reset",
            )
        return True


def _log_failure(failure: BaseException) -> None:
    logger.error("checking positions", exc_info=failure)


def _request(doubts: EpochQuestions) -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=topic,
            partitions=[
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=doubts[tp].leader.epoch,
                    leader_epoch=doubts[tp].leader_epoch,
                )
                for tp in group
            ],
        )
        for topic, group in groupby(sorted(doubts), lambda tp: tp.topic)
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
