"""Looks up the offsets of partitions that are to begin at an end of their log, or at a time.

It goes on in the background for as long as it takes, so that partitions that have a position can be
read meanwhile.
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
    """Looks up what `Positions.awaiting_reset` names, with each leader for itself."""

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
        """See that whatever awaits a reset is looked up. To be called when metadata came, too."""
        self._rounds.begin(self._positions.awaiting_reset())

    async def close(self) -> None:
        """Give up."""
        await self._rounds.close()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.leader(partition)
        return None if leader is None else leader.node_id

    async def _look_up(
        self, node_id: int, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> Collection[TopicPartition]:
        """Ask this leader once; those that are to be asked about again."""
        config = self._config
        try:
            found, failed = await ask_leader(
                self._cluster, node_id, specs, config.isolation, config.request_timeout_ms
            )
        except ConsumerError as error:
            # To be told, and to be tried again, as a fetch that is refused.
            self._on_failed(error)
            return specs
        for partition, offset in found.items():
            if offset is None:
                self._positions.reset_found(partition, specs[partition], None, UNKNOWN_EPOCH)
            else:
                at, _, epoch = offset
                self._positions.reset_found(partition, specs[partition], at, epoch)
        return failed
