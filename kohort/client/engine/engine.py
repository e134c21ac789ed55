"""The engine behind a `Consumer`: wires its components together and runs polls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from kohort.client.clock import monotonic_ms
from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import OngoingFailures
from kohort.client.core.errors import (
    BrokerUnreachableError,
    ConsumerClosedError,
    ConsumerError,
    IllegalStateError,
    PartitionError,
)
from kohort.client.core.fetch.buffers import Records
from kohort.client.core.fetch.deserialisers import Deserialisers
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.offsets import EARLIEST, OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.engine.housekeeping import PollHousekeeping
from kohort.client.engine.shutdown import Shutdown
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.fetch.position_lookups import PositionLookups
from kohort.client.group.commit_identity import Committer
from kohort.client.group.commits import Commits
from kohort.client.group.coordinator import Coordinator
from kohort.client.group.listener import RebalanceListener
from kohort.client.group.member import MembershipShell
from kohort.client.group.offsets import GroupOffsets
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.cluster import Cluster
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.metadata import MetadataConfig, MetadataKeeper
from kohort.client.net.versions import UnsupportedVersionError
from kohort.client.open_calls import OpenCalls
from kohort.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALM_MS: Final = 10_000
"""A poll error counts as resolved after this long without another error. A persisting error recurs
sooner, because retries are at most retry_backoff_max_ms apart."""

YIELD_EVERY_S: Final = 0.001
"""How long polls that return records at once may run without yielding to the event loop, which has
to receive further records."""


class Engine:
    def __init__(self, config: ConsumerConfig, subscription: Subscription) -> None:
        self.config = config
        self.subscription = subscription
        self.cluster = Cluster(config.cluster)
        self.positions = Positions(reads_committed=config.isolation_level == "read_committed")
        self.metadata = MetadataKeeper(
            self.cluster,
            MetadataConfig(
                metadata_max_age_ms=config.metadata_max_age_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                retry_backoff_max_ms=config.retry_backoff_max_ms,
                missing_topic_timeout_ms=config.missing_topic_timeout_ms,
            ),
            wanted_topics=self._wanted_topics,
            on_updated=self._metadata_updated,
        )
        self.deserialisers = Deserialisers(config.key_deserializer, config.value_deserializer)
        self.fetcher = Fetcher(
            self.cluster,
            self.positions,
            config,
            self.deserialisers,
            on_metadata_wanted=self.metadata.want,
        )
        self.calls = OpenCalls()
        self._coordinator: Coordinator | None = None
        self.commits: Commits | None = None
        if config.group_id is not None:
            self._coordinator = Coordinator(self.cluster, config.group_id)
            self.commits = self._commits_with(self._coordinator)
        offsets = None if self.commits is None else self.commits.offsets
        self.rebalance = Rebalance(
            subscription=subscription,
            positions=self.positions,
            fetcher=self.fetcher,
            offsets=offsets,
            processed=dict if self.commits is None else self.commits.processed,
            commits_by_itself=config.commits_by_itself,
            commit_timeout_s=config.max_poll_interval_ms / 1000,
            on_progress=self.wake,
        )
        self.member: MembershipShell | None = None
        if self._coordinator is not None:
            self.member = self._member_with(self._coordinator)
        self.lookups = PositionLookups(
            self.fetcher,
            self.positions,
            None if offsets is None else offsets.fetch_without_timeout,
            retry_backoff_ms=config.retry_backoff_ms,
            on_done=self.wake,
        )
        self.housekeeping = PollHousekeeping(
            self.metadata, self.lookups, self.rebalance, commits=self.commits, member=self.member
        )
        self.shutdown = Shutdown(self)
        self.started_s: float | None = None
        self.poll_failures = OngoingFailures()
        """Errors of polls, except those that concern a single partition."""
        self._enforces = False
        """Whether `enforce_rebalance` has an effect in the consumer group protocol: only with
        Kohort brokers."""
        self._reader: asyncio.Task[Any] | None = None
        """The task of `Consumer.run`, the only one that may read and commit during a run."""
        self._next_yield_s = 0.0

    def _commits_with(self, coordinator: Coordinator) -> Commits:
        config = self.config
        offsets = GroupOffsets(
            self.cluster,
            coordinator,
            group_instance_id=config.group_instance_id,
            backoff_ms=(config.retry_backoff_ms, config.retry_backoff_max_ms),
            observer=_OffsetsObserver(self),
        )
        return Commits(
            config,
            offsets,
            subscription=self.subscription,
            positions=self.positions,
            fetcher=self.fetcher,
            calls=self.calls,
        )

    def _member_with(self, coordinator: Coordinator) -> MembershipShell:
        return MembershipShell(
            self.config,
            coordinator=coordinator,
            metadata=self.metadata,
            subscription=self.subscription,
            rebalance=self.rebalance,
            on_progress=self.wake,
        )

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            BrokerUnreachableError, AuthenticationError: connecting failed.
            UnsupportedVersionError: the brokers do not serve the chosen group protocol.
        """
        try:
            await self.metadata.refresh()
            await self._choose_group_protocol()
        except BaseException as error:
            await self.cluster.close()
            if isinstance(error, DisconnectedError):
                # The broker accepted the connection and closed it: typical of a listener that
                # requires SASL.
                raise BrokerUnreachableError(str(error), error.code) from error
            raise
        self.started_s = time.monotonic()
        self.metadata.start()
        self.fetcher.start()
        self.subscribed()

    async def _choose_group_protocol(self) -> None:
        wanted = self.config.group_protocol
        if self.member is None or wanted == "classic":
            return
        versions = (await self.cluster.any_connection()).versions
        self._enforces = versions.reads_join_reasons
        if wanted == "auto":
            self.member.use_protocol(is_consumer=versions.has_consumer_groups)
        elif not versions.has_consumer_groups:
            raise UnsupportedVersionError(
                "group_protocol='consumer' needs brokers of Kafka 4.0 or later whose feature"
                " group.version is 1; set group_protocol to 'auto' or 'classic'",
                ErrorCode.UNSUPPORTED_VERSION,
            )

    # Subscription changes.

    def subscribed(self) -> None:
        """Apply a call of `subscribe` or `assign`, and forget the errors of earlier polls."""
        self.poll_failures.succeeded()
        if self.member is not None:
            self.member.membership.clear_errors()
        kind = self.subscription.kind
        self.metadata.expect(
            self.subscription.topics if kind is SubscriptionKind.TOPICS else (),
            self.subscription.assigned if kind is SubscriptionKind.MANUAL else (),
        )
        if self.commits is not None:
            is_by_group = self.subscription.is_by_group
            member = self.member if is_by_group else None
            self.commits.offsets.committer = Committer() if member is None else member.commits
        if kind is SubscriptionKind.MANUAL:
            if self.commits is not None and self.positions.assigned:
                self.commits.begin()
            self.rebalance.own(self.subscription.assigned)
            if any(tp.topic not in self.cluster.topics for tp in self.subscription.assigned):
                self.metadata.want()
        elif kind is SubscriptionKind.PATTERN:
            self.metadata.want()
        self._own_whole_topics()
        self.wake()

    def _own_whole_topics(self) -> None:
        """Read all partitions of the subscribed topics, without a group. Partitions added later are
        read from their beginning, since all their records are new.
        """
        if not self.subscription.is_alone:
            return
        owned = {tp for tp in self.subscription.assigned if self.subscription.wants(tp.topic)}
        had = {tp.topic for tp in owned}
        partitions = self.cluster.partition_counts(self.subscription.topics)
        for topic, count in partitions.items():
            owned.update(TopicPartition(topic, index) for index in range(count))
        if owned == self.subscription.assigned:
            return
        added = owned - self.subscription.assigned
        self.rebalance.own(frozenset(owned))
        for partition in added:
            if partition.topic in had:
                self.positions.seek_to(partition, EARLIEST)

    def _wanted_topics(self) -> Collection[str] | None:
        if self.subscription.kind is SubscriptionKind.PATTERN:
            return None
        wanted = set(self.subscription.topics)
        wanted.update(tp.topic for tp in self.subscription.assigned)
        if self.member is not None:
            wanted.update(self.member.watched_topics)
        return wanted

    def _metadata_updated(self) -> None:
        if self.subscription.kind is SubscriptionKind.PATTERN:
            self.subscription.match(
                [
                    name
                    for name, info in self.cluster.topics.items()
                    if not (info.is_internal and self.config.exclude_internal_topics)
                    and info.partition_count
                ]
            )
        if self.member is not None:
            self.member.metadata_updated()
        self._own_whole_topics()
        self.wake()

    def enforce_rebalance(self, reason: str | None, *, state_changed: bool) -> None:
        if self.member is None:
            raise IllegalStateError("enforce_rebalance() needs a group_id and a subscription")
        self.member.membership.enforce_rebalance(reason, state_changed=state_changed)
        if self.member.protocol == "consumer" and not self._enforces:
            logger.warning(
                "enforce_rebalance() has no effect: in the consumer group protocol only a Kohort"
                " broker computes a new assignment when asked"
            )
        self.wake()

    def wake(self) -> None:
        """Make the next poll run the housekeeping, and wake a waiting poll."""
        self.housekeeping.due_s = 0.0
        self.fetcher.wake()

    # Runs.

    @contextmanager
    def handed_to(
        self,
        listener: RebalanceListener,
        committable: Callable[[], dict[TopicPartition, OffsetAndMetadata]],
    ) -> Iterator[None]:
        """A context in which only the current task reads, records stay undeserialised, and
        `committable` decides what is committed.

        `listener` is notified of rebalances before the application's listener.
        """
        self._reader = asyncio.current_task()
        if self.commits is not None:
            self.commits.handled = committable
        self.rebalance.first_listener = listener
        read_by = self.deserialisers.key, self.deserialisers.value
        self.deserialisers.key = self.deserialisers.value = None
        try:
            yield
        finally:
            self.deserialisers.key, self.deserialisers.value = read_by
            self.rebalance.first_listener = None
            self._reader = None
            if self.commits is not None:
                self.commits.handled = None

    def check_reader(self) -> None:
        """Raise an IllegalStateError if `Consumer.run` is reading, in another task."""
        if self._reader is not None and asyncio.current_task() is not self._reader:
            raise IllegalStateError(
                "run() is reading this consumer, so only its handlers receive records"
            )

    # Polls.

    async def poll(
        self,
        timeout_s: float | None,
        take: Callable[[], T],
        only: frozenset[TopicPartition] | None = None,
    ) -> T | None:
        """Call `take`, which reads `only` (None: all), until it returns data; None on timeout."""
        self._check_open()
        self.check_reader()
        self.fetcher.state.mark_processed(only)
        if self.positions.begin_reading(only):
            self.fetcher.wake()
        try:
            with self.calls.call():
                result = await self._poll(timeout_s, take, only)
            self.poll_failures.calm(monotonic_ms(), CALM_MS)
        except (IllegalStateError, PartitionError):
            raise
        except Exception as error:
            self.poll_failures.failed(error, monotonic_ms())
            raise
        else:
            return result
        finally:
            if self.positions.end_reading(only):
                self.fetcher.wake()

    async def poll_only(
        self, partitions: Collection[TopicPartition], timeout_s: float | None, max_records: int
    ) -> Records:
        """Return records of these assigned partitions; {} on timeout.

        Raises:
            IllegalStateError: a partition is not assigned, or all were revoked meanwhile.
        """
        self.check_assigned(partitions)
        chosen = frozenset(partitions)

        def take() -> Records:
            if self._is_settled and chosen.isdisjoint(self.positions.assigned):
                self.check_assigned(partitions)  # No records could ever arrive.
            return self.fetcher.take(max_records, chosen)

        return await self.poll(timeout_s, take, chosen) or {}

    @property
    def _is_settled(self) -> bool:
        """Whether the member has applied its assignment; True if no group assigns partitions."""
        if self.member is None or not self.subscription.is_by_group:
            return True
        return self.member.membership.is_settled

    async def _poll(
        self,
        timeout_s: float | None,
        take: Callable[[], T],
        only: frozenset[TopicPartition] | None,
    ) -> T | None:
        if time.monotonic() >= self._next_yield_s:
            # A poll that always finds records never suspends, but other tasks need the loop too.
            await self.fetcher.let_loop_receive()
            self._next_yield_s = time.monotonic() + YIELD_EVERY_S
        deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self.subscription.kind is SubscriptionKind.NONE and not self.shutdown.is_closing:
                raise IllegalStateError("there is nothing to read: subscribe() or assign() first")
            self._check_open()
            await self.housekeeping.run(deadline_s)
            # Closing may have begun: its final commit would include records that are returned from
            # now on.
            self._check_open()
            if result := take():
                return result
            now_s = time.monotonic()
            left_s = deadline_s - now_s
            if left_s <= 0:
                return None
            if self.housekeeping.due_s:
                # Waiting counts as polling, so report it to the heartbeat thread regularly.
                report_s = self.config.max_poll_interval_ms / 3000
                idle_s = max(min(report_s, self.housekeeping.idle_s(now_s)), 0.001)
                await self.fetcher.wait(min(left_s, idle_s), only)

    def _check_open(self) -> None:
        self.housekeeping.check_caller()
        if self.shutdown.is_closing:
            raise ConsumerClosedError("this consumer is closed")

    # Closing.

    async def unsubscribe(self, timeout_s: float) -> None:
        """Give up all partitions, and leave the group.

        Cancelling this call during the final commit keeps the subscription. After the commit, a
        separate task notifies the listener and leaves the group, even if the call is cancelled.
        """
        self._check_open()
        await self.shutdown.unsubscribe(timeout_s)

    async def close(
        self, timeout_s: float, *, leaves: bool | None, commits_all: bool = True
    ) -> None:
        """Close everything within `timeout_s`, callbacks included; whatever is not done by then is
        skipped.

        If the caller is cancelled, closing finishes at once without waiting for the network.

        Args:
            leaves: whether to leave the group (KIP-1092); None: only dynamic members do.
            commits_all: whether auto commit includes the records that were returned last.

        Raises:
            Exception: whatever a callback raises, after everything has been closed.
        """
        self.housekeeping.check_caller()
        await self.shutdown.close(timeout_s, leaves=leaves, commits_all=commits_all)

    async def close_parts(self, timeout_s: float) -> None:
        """Close all connections and end all tasks; leaving the group may take up to `timeout_s`."""
        self.rebalance.close()
        await self.fetcher.close()
        await self.metadata.close()
        if self.commits is not None:
            await self.commits.offsets.close()
        if self.member is not None:
            await self.member.close(timeout_s)
        if self._coordinator is not None:
            self._coordinator.close()
        await self.cluster.close()

    # Helpers for `Consumer`.

    def group_commits(self) -> Commits:
        """The group's commits. Raises an IllegalStateError if there is no group."""
        if self.commits is None:
            raise IllegalStateError("committed positions need a group; set group_id")
        return self.commits

    async def find_position(self, partition: TopicPartition) -> int:
        """Wait for a partition's position. Raises the errors of `PositionLookups.find`."""
        with self.calls.call():
            return await self.lookups.find(partition, self.config.default_api_timeout_ms / 1000)

    async def all_topics(self) -> set[str]:
        """Fetch the names of all topics from the cluster."""
        await self.cluster.refresh(None)
        return {name for name, info in self.cluster.topics.items() if info.partition_count}

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Raise an IllegalStateError for the first partition that is not assigned."""
        for partition in partitions:
            self.positions.state(partition)


class _OffsetsObserver:
    """Reports commit events to the other components. Reads the engine's `member` at each event,
    because the member is created after the component for commits.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def coordinator_lost(self) -> None:
        if self._engine.member is not None:
            self._engine.member.coordinator_lost()

    def metadata_stale(self) -> None:
        self._engine.metadata.want()

    def committed(self, seconds: float) -> None:
        if self._engine.member is not None:
            self._engine.member.statistics.committed(seconds * 1000, monotonic_ms())

    def commit_failed(self, error: ConsumerError) -> None:
        if self._engine.member is not None:
            self._engine.member.statistics.commit_failed(error, monotonic_ms())

    def callback_due(self) -> None:
        self._engine.wake()
