"""Looks up offsets for partitions that start at an end of their log, or at a timestamp.

Lookups run in the background, so that partitions that have a position are read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kohort.client.core.errors import ConsumerError
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.offsets import UNKNOWN_EPOCH, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.leader_rounds import LeaderRounds
from kohort.client.fetch.offset_lookup import ask_leader
from kohort.client.net.cluster import Cluster


class OffsetResets:
    """Looks up the partitions in `Positions.awaiting_reset`, each leader independently."""

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
        """`on_found` is called when positions may have been set, `on_failed` with an error for the
        user.
        """
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_failed = on_failed
        self._rounds: LeaderRounds[OffsetSpec] = LeaderRounds(
            "look up offsets",
            self._look_up,
            leader_of=self._leader_of,
            backoff_ms=(config.retry_backoff_ms, config.retry_backoff_max_ms),
            on_due=self.begin,
            on_answered=on_found,
            on_metadata_wanted=on_metadata_wanted,
            on_failed=on_failed,
        )

    def begin(self) -> None:
        """Start all lookups that are needed. To be called after new metadata, too."""
        self._rounds.begin(self._positions.awaiting_reset())

    async def close(self) -> None:
        """Cancel pending lookups."""
        await self._rounds.close()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.leader(partition)
        return None if leader is None else leader.node_id

    async def _look_up(
        self, node_id: int, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> Collection[TopicPartition]:
        """Query this leader once. Returns the partitions to query again."""
        config = self._config
        try:
            offsets, failed = await ask_leader(
                self._cluster, node_id, specs, config.isolation, config.request_timeout_ms
            )
        except ConsumerError as error:
            # Reported to the user and retried, as with a fetch that is refused.
            self._on_failed(error)
            return specs
        for partition, offset in offsets.items():
            if offset is None:
                self._positions.reset_found(partition, specs[partition], None, UNKNOWN_EPOCH)
            else:
                at, _, epoch = offset
                self._positions.reset_found(partition, specs[partition], at, epoch)
        return failed
