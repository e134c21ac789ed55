"""The consumer: reads topics, alone or as a group member, on one asyncio loop.

Methods that do the same as aiokafka's have the same names. Use a consumer only from the event loop
that started it, never from another thread.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack

from kohort.client.config import ConsumerConfig, OtherSettings, config_from
from kohort.client.consumer.health import Health
from kohort.client.consumer.lifecycle import CLOSE_TIMEOUT_S, Lifecycle
from kohort.client.consumer.reporting import figures_of, health_of, metadata_of
from kohort.client.consumer.seeking import ConsumerPositions
from kohort.client.consumer.subscribing import ConsumerSubscription
from kohort.client.core.errors import ConsumerClosedError
from kohort.client.core.group.identity import GroupMetadata
from kohort.client.core.group.statistics import Figures
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import (
    OffsetAndMetadata,
    ToCommit,
)
from kohort.client.core.partitions import PartitionInfo, TopicPartition
from kohort.client.core.records import ConsumerRecord
from kohort.client.engine.engine import Engine
from kohort.client.group.callbacks import CommitCallback
from kohort.client.processing.options import RunSettings, batch_options_from, options_from
from kohort.client.processing.run_controller import RunController

if TYPE_CHECKING:
    # Not imported at run time. For type checkers, a plain `Consumer` means `Consumer[Any, Any]`.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from kohort.client.core.records import K, V

_numbers: Final = itertools.count(1)
"""Numbers for the consumers of this process that were not given a client_id."""


class Consumer(ConsumerPositions, ConsumerSubscription, Generic[K, V]):
    """Reads records. Must be closed: use `async with`, or call `start` and `stop`.

    Type checkers infer the types of keys and values from the deserialisers: `Consumer("orders",
    value_deserializer=Order.parse)` is a `Consumer[Any, Order]`. The type is Any without a
    deserialiser, and with mypy if it is a coroutine function; `Consumer[str, Order](...)` sets it.

    Only one task may poll at a time (`async for`, `poll`, `getone`, `getmany`), or several if each
    passes partitions of its own to `getone` or `getmany`. Other tasks may commit, seek, pause and
    query meanwhile.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[Any], Coroutine[Any, Any, K] | K] | None = None,
        value_deserializer: Callable[[Any], Coroutine[Any, Any, V] | V] | None = None,
        **settings: Unpack[OtherSettings],
    ) -> None:
        """Create a consumer, subscribed to `topics` if any are given.

        Raises:
            ConfigError: a setting cannot be used (see `ConsumerConfig`).
        """
        if settings.get("client_id") is None:
            # The number distinguishes consumers in metrics, and in the member ids that brokers
            # derive from the client id.
            settings = {**settings, "client_id": f"kohort-{next(_numbers)}"}
        config = config_from(
            {
                "key_deserializer": key_deserializer,
                "value_deserializer": value_deserializer,
                **settings,
            }
        )
        self._subscription = Subscription(has_group=config.group_id is not None)
        self._runs = RunController()
        self._lifecycle = Lifecycle(config, self._subscription, self._runs)
        if topics:
            self.subscribe(topics)

    @property
    def config(self) -> ConsumerConfig:
        return self._lifecycle.config

    # Starting and stopping.

    async def start(self) -> None:
        """Connect to the cluster. The first poll joins the group.

        Raises:
            BrokerUnreachableError: no broker of bootstrap_servers answers.
            AuthenticationError: the broker rejects the credentials.
        """
        await self._lifecycle.start()

    async def stop(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool | None = None) -> None:  # noqa: ASYNC109
        """Commit (with auto commit), notify the listener, leave the group, disconnect.

        Other tasks' calls in progress raise a ConsumerClosedError; `async for` simply ends. If
        `stop` is cancelled it skips the remaining steps and releases everything at once.

        Args:
            timeout: seconds for all steps together. A callback that has not returned after four
                fifths of it is cancelled, and a warning names it.
            leave: whether to tell the group (KIP-1092). By default (None) a dynamic member does, so
                that its partitions are reassigned at once; a static member does not, since it is
                expected to return.

        Raises:
            Exception: whatever the listener raises, after everything has been closed.
        """
        await self._lifecycle.stop(timeout, leave=leave, commits_all=True)

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an error, do not commit the records returned last: they may not have been processed.
        await self._lifecycle.stop(CLOSE_TIMEOUT_S, leave=None, commits_all=error is None)

    # Reading.

    async def poll(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109 - Java's parameter, and its meaning.
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition, in order within each; {} if none arrive within `timeout`.

        Args:
            timeout: seconds to wait for the first record. Rebalances, position lookups and
                connecting take place within it; the run time of callbacks is added.
                Cancelling a poll loses nothing: a running callback continues, and the next poll
                waits for it.
            max_records: upper bound; defaults to max_poll_records.

        Raises:
            ConsumerError: the group rejected this member, or a partition cannot be read.
            Exception: whatever the listener raised.
        """
        engine = self._running()
        count = self._count(max_records)
        return await engine.poll(timeout, lambda: engine.fetcher.take(count)) or {}

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records as `poll` does, only of these partitions if any are given.

        Several tasks may each read their own partitions; each gets only the records of its own.
        """
        engine = self._running()
        count = self._count(max_records)
        if not partitions:
            return await engine.poll(timeout_ms / 1000, lambda: engine.fetcher.take(count)) or {}
        return await engine.poll_only(partitions, timeout_ms / 1000, count)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Wait for the next record, of these partitions if any are given. Raises as `poll`."""
        if not partitions:
            return await self._next()
        records = await self._running().poll_only(partitions, None, 1)
        return next(iter(records.values()))[0]

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Iterate over records until another task stops the consumer. Raises as `poll`."""
        self._lifecycle.check_open()
        if self._lifecycle.engine is not None:
            self._lifecycle.engine.check_reader()
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        engine = self._lifecycle.engine
        if engine is not None and time.monotonic() < engine.housekeeping.due_s:
            record = engine.fetcher.next_record()
            if record is not None:
                return record
        try:
            return await self._next()
        except ConsumerClosedError:
            raise StopAsyncIteration from None

    async def _next(self) -> ConsumerRecord[K, V]:
        engine = self._running()
        record = await engine.poll(None, engine.fetcher.next_record)
        assert record is not None
        return record

    # Handling records.

    async def run(
        self,
        handler: Callable[[ConsumerRecord[K, V]], Awaitable[object] | object],
        **options: Unpack[RunSettings],
    ) -> None:
        """Handle every record at least once, and commit the handled offsets, until `stop` or
        `end_run`.

        Afterwards each position is at the first record that was not handled, so reading can
        continue. Cancelling cancels the handlers, whose records are not committed.

        Args:
            handler: called with each record, usually a coroutine function. A plain function must be
                quick, because it blocks the event loop.
            options: how many handlers run at once, in which order, and what happens if one fails;
                see `RunOptions`.

        Raises:
            ConfigError: an option is invalid or unknown, or `handler` cannot handle records.
            UnknownTopicError: the topic `dead_letter` does not exist, and the brokers do not
                create it.
            HandlerError: see `RunOptions.on_failure`.
            IllegalStateError: a run is in progress already, or there is nothing to read.
            Exception: whatever a poll raises.
        """
        await self._runs.run(self._running(), handler, options_from(options))

    async def run_batches(
        self,
        handler: Callable[[list[ConsumerRecord[K, V]]], Awaitable[object] | object],
        *,
        max_records: int = 500,
        max_wait_ms: int = 500,
        **options: Unpack[RunSettings],
    ) -> None:
        """Like `run`, but handle batches of consecutive records of a partition: one batch of each
        partition at a time, batches of several partitions concurrently.

        Args:
            handler: called with a list of records. If the last attempt at a batch fails, its
                records are handled again as batches of one; only those that fail again become
                dead letters.
            max_records: the largest number of records of a batch.
            max_wait_ms: how long a record waits for others before a smaller batch is handled.
            options: as for `run`; `ordering` must be "partition".

        Raises as `run`.
        """
        chosen, batches = batch_options_from(max_records, max_wait_ms, options)
        await self._runs.run(self._running(), handler, chosen, batches)

    def end_run(self) -> None:
        """Make `run` return once the running handlers have finished. Handlers may call this too.

        Has no effect before `run` has begun: a new task begins it in the next event loop iteration.
        """
        self._runs.end()

    # The group.

    def enforce_rebalance(self, reason: str | None = None, *, state_changed: bool = False) -> None:
        """Make the group rebalance (KIP-568): the next poll rejoins. Sends nothing by itself.

        A rebalance in progress absorbs the request: check the assignment afterwards, and call again
        if it does not reflect the change.

        Args:
            reason: recorded in the broker's log and history (KIP-800); of several calls the last
                one counts.
            state_changed: whether the assignor's input (its user data) has changed.

        Raises:
            IllegalStateError: there is no group subscription.
        """
        self._running().enforce_rebalance(reason, state_changed=state_changed)

    def group_metadata(self) -> GroupMetadata:
        """The metadata with which a transactional producer commits this consumer's positions: pass
        `group_id` of the result to aiokafka's producer, `for_librdkafka()` to confluent-kafka's.
        Call this again for each commit.

        Raises:
            IllegalStateError: there is no group_id.
        """
        return metadata_of(self.config, self._lifecycle.engine)

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, ToCommit] | None = None) -> None:
        """Store positions with the group, by default those after all returned records. Retries if
        that may help; earlier `commit_async` calls are completed first, including their callbacks.

        Args:
            offsets: the next offset to read of each partition: a number, or with metadata text, or
                with a leader epoch as well.

        Raises:
            CommitFailedError: the partitions may belong to other members by now.
            RebalanceInProgressError: poll, then commit again.
            OperationTimedOutError: no success within default_api_timeout_ms.
            IllegalStateError: there is no group_id, or the group has not assigned a partition to
                this consumer (see `commit_unassigned`).
        """
        await self._running().group_commits().commit(offsets)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, ToCommit] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Store positions without waiting: one attempt, in the order of the calls.

        Args:
            offsets: as for `commit`.
            callback: called with the outcome by a later poll, commit or stop; a plain function or a
                coroutine function. If it raises, that poll or stop raises. Without a callback,
                failures are logged.
        """
        self._running().group_commits().commit_async(offsets, callback)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset, or None. Raises as `committed_offsets`."""
        committed = (await self.committed_offsets([partition]))[partition]
        return None if committed is None else committed.offset

    async def committed_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, with metadata; None if there is none.

        Raises:
            OperationTimedOutError: no success within default_api_timeout_ms.
            IllegalStateError: there is no group_id.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        return await self._running().group_commits().committed(wanted)

    def store_offsets(
        self,
        message: ConsumerRecord[K, V] | None = None,
        offsets: Mapping[TopicPartition, ToCommit] | None = None,
    ) -> None:
        """Mark records as processed, so that auto commit, or `commit()`, commits them. Sends
        nothing.

        For `enable_auto_offset_store=False`: handlers may finish in any order and at any time, and
        store the offset up to which everything is done. A record that was returned before its
        partition was revoked and reassigned is ignored: another member may have committed more.

        Args:
            message: this record and all before it in its partition.
            offsets: as for `commit`; an alternative to `message`.

        Raises:
            IllegalStateError: enable_auto_offset_store is not False, there is no group_id, or a
                partition is not assigned.
        """
        self._running().group_commits().store(message, offsets)

    # The cluster.

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition ids of a topic read or subscribed to; None if unknown."""
        info = self._running().cluster.topics.get(topic)
        return None if info is None or not info.partition_count else {*range(info.partition_count)}

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Fetch the partitions of any topic, with leaders and replicas, from the cluster.

        Raises:
            UnknownTopicError, AuthorizationError: the topic does not exist, or access is denied.
            BrokerUnreachableError: no broker answers.
        """
        engine = self._running()
        with engine.calls.call():
            return await engine.cluster.partitions(topic)

    async def topics(self) -> set[str]:
        """Fetch the names of all topics that this consumer is allowed to see from the cluster.

        Raises:
            BrokerUnreachableError: no broker answers.
        """
        engine = self._running()
        with engine.calls.call():
            return await engine.all_topics()

    # State of the consumer.

    def health(self) -> Health:
        """Return whether the consumer makes progress, and if not, why. Takes microseconds."""
        return health_of(
            self.config,
            self._subscription,
            self._lifecycle.engine,
            self._runs.figures(),
            is_closed=self._lifecycle.is_closed,
        )

    def metrics(self) -> Figures:
        """The group metrics under Java's names, such as `rebalance-total`; None where Java has NaN.

        Times are in milliseconds unless the name says seconds.
        `kohort.client.consumer.metrics.ConsumerCollector` exports them to Prometheus.
        """
        return figures_of(self._subscription, self._lifecycle.engine)

    # Internals.

    def _running(self) -> Engine:
        return self._lifecycle.running()

    def _count(self, max_records: int | None) -> int:
        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be 1 or more")
        return max_records or self.config.max_poll_records
