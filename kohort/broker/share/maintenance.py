"""Loads the state of share-partitions at the start, and keeps the state topic short.

Each share-partition needs the records from its latest snapshot on. So a rarely written
share-partition gets a new snapshot from time to time, and records below the latest snapshots of all
share-partitions are deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config import BrokerConfig
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.share.partitions import UNDETERMINED, SharePartitions
from kohort.broker.share.state_topic import StateTopic
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.state_log import SharePartitionKey, StateReplay, StoredState, tombstone
from kohort.groups.share.states import RecordState
from kohort.groups.steps import FEW
from kohort.protocol.errors import DecodeError, KafkaError

logger = logging.getLogger(__name__)

UNLOADED_AFTER_MS: Final = 600_000
"""A share-partition's in-flight window is freed if it is idle and was not used for this long."""

UNLOAD_CHECK_MS: Final = 60_000

_SNAPSHOT_KEY: Final = b"\0\0"
"""The first bytes of the keys of snapshots."""


class InitializedGroup(NamedTuple):
    """A share group loaded by the group coordinator, with its initialized partitions."""

    group_id: str
    epoch: int
    topics: Mapping[bytes, StoredTopic]
    """The partitions that have state, by topic id."""


class _Stored(NamedTuple):
    states: dict[SharePartitionKey, StoredState]
    snapshot_offsets: dict[SharePartitionKey, int]


class Maintenance:
    def __init__(
        self,
        partitions: SharePartitions,
        topic: StateTopic,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        background_tasks: BackgroundTasks,
    ) -> None:
        self._partitions = partitions
        self._topic = topic
        self._config = config
        self._clock = clock
        self._background_tasks = background_tasks
        self._tasks: list[asyncio.Task[None]] = []

    async def load(self, groups: Iterable[InitializedGroup]) -> None:
        """Load the state of the groups' share-partitions. Create missing state, and delete the
        state of share-partitions that no group has.
        """
        stored = await self._read()
        partitions, time_slice = self._partitions, Slice(self._clock)
        begun = 0
        for group in groups:
            for topic_id, topic in group.topics.items():
                for number in topic.partitions:
                    key = SharePartitionKey(group.group_id, topic_id, number)
                    if partitions.partition_of(key) in partitions.unreadable:
                        continue
                    state = stored.states.pop(key, None)
                    if state is None or state.start_offset == UNDETERMINED:
                        epoch = group.epoch if state is None else state.state_epoch
                        partitions.begin(key, partitions.settings(key.group_id).reset_policy, epoch)
                        begun += 1
                    else:
                        share = partitions.add(key, state)
                        share.snapshot_offset = stored.snapshot_offsets.get(key)
                        if any(batch.state is RecordState.ARCHIVING for batch in state.batches):
                            partitions.window(share)  # Loading the window resumes its dead letters.
                    await time_slice.pause()
        if begun:
            logger.warning("Initialized %d share-partitions that had no stored state", begun)
        if stored.states:
            logger.warning(
                "Deleting the state of %d share-partitions without a group", len(stored.states)
            )
        for key in stored.states:
            record = tombstone(key)
            self._topic.write(partitions.partition_of(key), record.key, record.value, _ignore)
            await time_slice.pause()
        logger.info("Loaded %d share-partitions", len(partitions))

    def begin(self) -> None:
        """Start the background tasks."""
        start = self._background_tasks.start
        self._tasks = [
            start("snapshots of share-partitions", self._snapshot_for_ever),
            start("pruning of share-partitions", self._prune_for_ever),
            start("unloading of share-partitions", self._unload_for_ever),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _read(self) -> _Stored:
        replay = StateReplay()
        offsets: dict[SharePartitionKey, int] = {}
        unreadable: set[int] = set()
        time_slice = Slice(self._clock)  # No client is served yet, but health probes are answered.
        for partition in range(self._topic.partition_count):
            try:
                for count, record in enumerate(self._topic.read(partition)):
                    if record.key is None:
                        continue
                    try:
                        key = replay.apply(record.key, record.value)
                    except DecodeError as error:
                        logger.warning(
                            "Skipped an invalid record of __share_group_state: %s", error
                        )
                        continue
                    if key is not None and (
                        key not in offsets or record.key.startswith(_SNAPSHOT_KEY)
                    ):
                        offsets[key] = record.offset
                    if count % FEW == 0:
                        await time_slice.pause()
            except KafkaError as error:
                logger.error(  # noqa: TRY400 - the disk is at fault, not this code.
                    "Partition %d of __share_group_state cannot be read; its state is "
                    "unavailable: %s",
                    partition,
                    error,
                )
                unreadable.add(partition)
        if replay.updates_without_snapshot:
            logger.warning(
                "Updates in __share_group_state without a snapshot: %d",
                replay.updates_without_snapshot,
            )
        self._partitions.unreadable = frozenset(unreadable)
        return _Stored(replay.states, offsets)

    async def _snapshot_for_ever(self) -> None:
        while True:
            await asyncio.sleep(
                self._config().share_coordinator_cold_partition_snapshot_interval_ms / 1_000
            )
            await self.write_cold_snapshots()

    async def write_cold_snapshots(self) -> None:
        """Write snapshots of all share-partitions that had no write in the configured interval."""
        interval_ms = self._config().share_coordinator_cold_partition_snapshot_interval_ms
        time_slice = Slice(self._clock)
        for share in list(self._partitions):
            self._partitions.write_cold_snapshot(share, interval_ms)
            await time_slice.pause()

    async def _unload_for_ever(self) -> None:
        while True:
            await asyncio.sleep(UNLOAD_CHECK_MS / 1_000)
            await self.unload()

    async def unload(self) -> None:
        """Free idle in-flight windows of share-partitions not used for UNLOADED_AFTER_MS."""
        time_slice = Slice(self._clock)
        for share in list(self._partitions):
            if self._clock.monotonic_ms() - share.used_ms >= UNLOADED_AFTER_MS:
                share.unload()
            await time_slice.pause()

    async def _prune_for_ever(self) -> None:
        while True:
            await asyncio.sleep(
                self._config().share_coordinator_state_topic_prune_interval_ms / 1_000
            )
            self.prune()

    def prune(self) -> None:
        """Delete the records of each partition of __share_group_state that precede the latest
        snapshots of all its share-partitions; all records if it has no share-partitions.
        """
        end_offsets = {n: self._topic.end_offset(n) for n in range(self._topic.partition_count)}
        needed: dict[int, int] = {}
        for share in self._partitions:
            offset = -1 if share.snapshot_offset is None else share.snapshot_offset
            known = needed.get(share.state_partition, offset)
            needed[share.state_partition] = min(known, offset)
        for partition, offset in (end_offsets | needed).items():
            if offset > 0 and partition not in self._partitions.unreadable:
                try:
                    self._topic.prune(partition, offset)
                except KafkaError as error:
                    logger.warning("Cannot prune __share_group_state: %s", error)


def _ignore(error: KafkaError | None, offset: int) -> None:
    del offset
    if error is not None:
        logger.warning("The state of a share-partition was not deleted: %s", error)
