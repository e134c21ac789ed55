"""The consumer: reads topics, alone or as a member of a group, on one asyncio loop.

Names are aiokafka's where they do the same job. Everything here may be used from the loop that
started the consumer, and from no other thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import ssl
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from kohort.client.config import ConsumerConfig, Settings, config_from
from kohort.client.constructor import K, TypedConstructor, V
from kohort.client.core.errors import ConsumerClosedError, IllegalStateError
from kohort.client.core.group.group_metadata import GroupMetadata
from kohort.client.core.group.statistics import Figures
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    ToCommit,
    check_time,
)
from kohort.client.core.partition_info import PartitionInfo
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import ConsumerRecord
from kohort.client.engine import Engine
from kohort.client.fetch.offset_lookup import list_offsets
from kohort.client.group.commit_callbacks import CommitCallback
from kohort.client.group.listener import RebalanceListener, listener_from
from kohort.client.health import Health
from kohort.client.net.aside import aside
from kohort.client.processing.running import Runs
from kohort.client.reporting import figures_of, health_of

CLOSE_TIMEOUT_S: Final = 30.0

_numbers: Final = itertools.count(1)
"""Numbers for the consumers of this process that were not given a client_id."""


class Consumer(TypedConstructor[K, V], Runs[K, V]):
    """Reads records. To be closed: use it with `async with`, or call `start` and `stop`.

    Type checkers know the types of keys and values by what the deserialisers return:
    `Consumer("orders", value_deserializer=Order.parse)` is a `Consumer[Any, Order]`.

    A consumer is polled by one task at a time; `async for`, `poll`, `getone` and `getmany` all
    poll. Others may commit, seek, pause and ask meanwhile.
    """

    def _set_up(self, topics: tuple[str, ...], settings: Settings) -> None:
        if settings.get("client_id") is None:
            # Told apart by their metrics, and by the member ids that brokers make of it.
            settings = {**settings, "client_id": f"kohort-{next(_numbers)}"}
        self.config: ConsumerConfig = config_from(settings)
        self._subscription = Subscription(has_group=self.config.group_id is not None)
        self._listener: RebalanceListener = listener_from(None)
        self._engine: Engine | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_closed = False
        if topics:
            self.subscribe(topics)

    # Beginning and end.

    async def start(self) -> None:
        """Connect. The group is joined by the first poll.

        Raises:
            BrokerUnreachableError: no broker answers at bootstrap_servers.
            AuthenticationError: the broker does not let us in.
        """
        if self._is_closed:
            raise ConsumerClosedError("a closed consumer cannot be started again; make a new one")
        if self._engine is not None:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="start a consumer")
        starting = self._starting
        try:
            # Who calls twice waits for the same.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled() and self._is_closed:
                raise ConsumerClosedError("this consumer was closed meanwhile") from None
            starting.cancel()
            raise
        finally:
            self._starting = None

    async def _ready_config(self) -> ConsumerConfig:
        """With the authorities that the system trusts, read once for all connections."""
        config = self.config
        if config.ssl_context is None and config.security_protocol.endswith("SSL"):
            context = await aside(ssl.create_default_context, "read the system's authorities")
            config = self.config = dataclasses.replace(config, ssl_context=context)
        return config

    async def _start(self) -> None:
        engine = Engine(await self._ready_config(), self._subscription)
        engine.rebalance.listener = self._listener
        await engine.start()
        self._engine = engine

    async def stop(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool | None = None) -> None:  # noqa: ASYNC109
        """Commit (with auto commit), tell the listener, leave the group, disconnect.

        Calls of other tasks that wait for the cluster end with a ConsumerClosedError, `async for`
        simply ends. One that is cancelled ends at once all the same, with what is not done left.

        Args:
            timeout: seconds that all of it may take. A callback that has not returned by four
                fifths of them is cancelled, and a warning names it.
            leave: whether to tell the group (KIP-1092). None: a dynamic member does, so that others
                get its partitions at once; a static one does not, since it means to come back.

        Raises:
            whatever the listener raises, once everything has ended.
        """
        await self._stop(timeout, leave=leave, commits_all=True)

    async def _stop(self, timeout_s: float, *, leave: bool | None, commits_all: bool) -> None:
        engine = self._engine
        if engine is None:
            self._is_closed = True
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.wait([self._starting])
            engine = self._engine
        if engine is not None:
            try:
                left_s = await self._end_run_first(engine, timeout_s, leave=leave)
                await engine.close(left_s, leaves=leave, commits_all=commits_all)
            finally:
                self._is_closed = engine.ending.is_closed

    async def _end_run_first(
        self, engine: Engine, timeout_s: float, *, leave: bool | None
    ) -> float:
        """Let handlers end; how much of the time is left then."""
        deadline_s = time.monotonic() + timeout_s
        try:
            await self._end_run(timeout_s)
        except asyncio.CancelledError:
            await engine.close(0.0, leaves=leave, commits_all=False)
            raise
        return max(0.0, deadline_s - time.monotonic())

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
        # After an error, what was returned last may not have been processed.
        await self._stop(CLOSE_TIMEOUT_S, leave=None, commits_all=error is None)

    # Reading.

    async def poll(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109 - Java's parameter, and its meaning.
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Records by partition, in order within each; {} if there are none within `timeout`.

        Args:
            timeout: seconds to wait for the first record. Rebalances, positions and connections
                are waited for within it; callbacks take the time that they take. Cancelling a poll
                loses nothing: a callback goes on, and the next poll waits for it.
            max_records: at most; max_poll_records by default.

        Raises:
            ConsumerError: the group cannot go on with this member, or a partition cannot be read.
            whatever the listener raised.
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
        """Returns records like `poll`, of these partitions only if there are any.

        Tasks that each read partitions of their own get the records of theirs alone.
        """
        engine = self._running()
        count = self._count(max_records)
        if not partitions:
            return await engine.poll(timeout_ms / 1000, lambda: engine.fetcher.take(count)) or {}
        return await engine.poll_only(partitions, timeout_ms / 1000, count)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """The next record, however long it takes to come; of these partitions only if there are
        any, also if other tasks read others. Raises as `poll`.
        """
        if not partitions:
            return await self._next()
        found = await self._running().poll_only(partitions, None, 1)
        return next(iter(found.values()))[0]

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records one by one, until another task stops the consumer. Raises as `poll`."""
        if self._is_closed:
            raise ConsumerClosedError("this consumer is closed")
        if self._engine is not None:
            self._engine.check_reader()
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        engine = self._engine
        if engine is not None and time.monotonic() < engine.duties.due_s:
            record = engine.fetcher.next_record()
            if record is not None:
                return record
        try:
            return await self._next()
        except ConsumerClosedError:
            raise StopAsyncIteration from None

    async def _next(self) -> ConsumerRecord[K, V]:
        engine = self._running()
        found = await engine.poll(None, engine.fetcher.next_record)
        assert found is not None
        return found

    # What to read.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics with the other members of the group; in place of those before.

        Without a group_id they are read whole, each from where auto_offset_reset says, and
        partitions that are added to them later from their beginning.

        Args:
            pattern: instead of names: all topics whose whole name matches, future ones included.
            listener: told about rebalances. One for aiokafka will do.

        Raises:
            IllegalStateError: partitions were assigned by hand, or there is a listener and no
                group_id, so that there are no rebalances.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is not the name of a topic; give names one by one")
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe() takes topics or a pattern, one of the two")
        self._check_may_subscribe()
        if self.config.group_id is None and listener is not None:
            raise IllegalStateError("without a group_id there are no rebalances to listen to")
        listener = listener_from(listener)
        if pattern is None:
            self._subscription.subscribe(names)
        else:
            self._subscription.subscribe_pattern(re.compile(pattern))
        self._listener = listener
        if self._engine is not None:
            self._engine.rebalance.listener = listener
            self._engine.subscribed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, even if others do. No group shares them out; with a
        group_id its committed positions are used.

        Raises:
            IllegalStateError: topics are subscribed to; unsubscribe first.
        """
        self._check_may_subscribe()
        self._subscription.assign(TopicPartition(*one) for one in partitions)
        if self._engine is not None:
            self._engine.subscribed()

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these as well, beside what was assigned by hand, which goes on as it was.

        Raises:
            IllegalStateError: topics are subscribed to; unsubscribe first.
        """
        self._check_may_subscribe()
        added = (TopicPartition(*one) for one in partitions)
        self.assign({*self._assigned_by_hand(), *added})

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer; the others go on as they were. With auto commit, what was processed
        of them is committed.

        Raises:
            IllegalStateError: one of them is not assigned, or topics are subscribed to.
        """
        self._check_may_subscribe()
        gone = {TopicPartition(*one) for one in partitions}
        assigned = self._assigned_by_hand()
        for one in sorted(gone - assigned):
            raise IllegalStateError(f"{one.topic}-{one.partition} was not assigned by hand")
        self.assign(assigned - gone)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group. Raises what the listener raises."""
        if self._engine is None:
            self._subscription.unsubscribe()
        else:
            await self._running().unsubscribe(CLOSE_TIMEOUT_S)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._subscription.assigned

    def enforce_rebalance(self, reason: str | None = None, *, state_changed: bool = False) -> None:
        """Have the group rebalance (KIP-568): the next poll joins again. Sends nothing by itself.

        A rebalance that is under way takes the wish with it: look at the assignment afterwards, and
        call again if what has changed was not taken into account.

        Args:
            reason: for the broker's log and history (KIP-800); the latest of several calls counts.
            state_changed: what has changed is what the assignor goes by (its user data).

        Raises:
            IllegalStateError: there is no subscription by a group.
        """
        engine = self._running()
        if engine.member is None:
            raise IllegalStateError("enforce_rebalance() needs a group_id and a subscription")
        engine.member.membership.enforce_rebalance(reason, state_changed=state_changed)
        engine.wake()

    def group_metadata(self) -> GroupMetadata:
        """For a transactional producer that commits this consumer's positions: aiokafka's takes
        its `group_id`, confluent-kafka's its `for_librdkafka()`. To be asked for at each commit.

        Raises:
            IllegalStateError: there is no group_id.
        """
        config = self.config
        if config.group_id is None:
            raise IllegalStateError("there is no group without a group_id")
        member = None if self._engine is None else self._engine.member
        if member is None:
            return GroupMetadata(config.group_id, group_instance_id=config.group_instance_id)
        identity = member.membership.identity
        return GroupMetadata(
            config.group_id, identity.generation, identity.member_id, config.group_instance_id
        )

    # Positions.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be returned.

        Raises:
            IllegalStateError: the partition is not assigned.
            OperationTimedOutError: it could not be found out within default_api_timeout_ms.
        """
        engine = self._running()
        found = engine.positions.position(partition)
        if found is None:
            found = await engine.find_position(partition)
        return found

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from there.

        Raises:
            TypeError, ValueError: there can be no such offset.
            IllegalStateError: the partition is not assigned.
        """
        engine = self._running()
        if isinstance(offset, OffsetAndMetadata):
            engine.positions.seek(partition, offset.offset, offset.leader_epoch)
        else:
            engine.positions.seek(partition, offset)
        engine.wake()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record of these partitions, or of all. It is looked up meanwhile."""
        self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these partitions, or of all. It is looked up meanwhile;
        `position` waits for it.
        """
        self._seek_to(partitions, LATEST)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Go on from the committed positions of these partitions, or of all, and return them.
        Partitions without one keep their position.
        """
        engine = self._running()
        asked = {one: engine.positions.state(one) for one in self._chosen(partitions)}
        found = await self.committed_offsets(asked)
        for partition, committed in found.items():
            # One that went and came back meanwhile begins where its group is by now.
            if committed is not None and engine.positions.find(partition) is asked[partition]:
                engine.positions.seek(partition, committed.offset, committed.leader_epoch)
        engine.wake()
        return found

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset of the first record of each. Raises as `offsets_for_times`."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will get; with read_committed the last stable
        one. Raises as `offsets_for_times`.
        """
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than its time (milliseconds since
        the epoch); None if there is none.

        Raises:
            UnknownTopicError, AuthorizationError, BrokerUnreachableError: not within
                default_api_timeout_ms.
        """
        for timestamp_ms in timestamps.values():
            check_time(timestamp_ms)
        return dict(await self._list_offsets(timestamps))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until `resume`; polls go on, and keep the membership."""
        engine = self._running()
        engine.positions.pause(partitions)
        engine.fetcher.wake()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        engine = self._running()
        engine.positions.resume(partitions)
        engine.fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        """The partitions that were paused."""
        return self._running().positions.paused()

    def highwater(self, partition: TopicPartition) -> int | None:
        """Behind the last record that was there at the last fetch; None before there was one."""
        return self._running().positions.high_watermark(partition)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end as of the last fetch: the high watermark,
        or with read_committed the last stable offset. None while one of them is not known.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._running().positions.lag(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset that `highwater` gives, but before the first record of an open transaction."""
        return self._running().positions.last_stable(partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a broker last told `highwater` and `last_stable_offset`, with records or without, in
        milliseconds since the epoch; None before that.
        """
        return self._running().positions.state(partition).learned_wall_ms

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, ToCommit] | None = None) -> None:
        """Store positions with the group, by default those of everything that was returned. Tries
        again if that may help; earlier commits of `commit_async` go first, their callbacks too.

        Args:
            offsets: by partition the next offset to read, as a number, with a text for its
                readers, or also with a leader epoch.

        Raises:
            CommitFailedError: others may read the partitions by now.
            RebalanceInProgressError: poll, then commit again.
            OperationTimedOutError: no success within default_api_timeout_ms.
            IllegalStateError: there is no group_id, or a partition is not assigned to this
                consumer by the group (`commit_unassigned`).
        """
        await self._running().group_commits().commit(offsets)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, ToCommit] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Have positions stored without waiting: one attempt, in the order of the calls.

        Args:
            offsets: as for `commit`.
            callback: told by a later poll, commit or stop how it went; a plain function or a
                coroutine. What it raises, a poll or stop raises. Without one, failures are logged.
        """
        self._running().group_commits().commit_async(offsets, callback)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed; None for none. Raises as `committed_offsets`."""
        found = (await self.committed_offsets([partition]))[partition]
        return None if found is None else found.offset

    async def committed_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, with metadata; None for nothing.

        Raises:
            OperationTimedOutError: no success within default_api_timeout_ms.
            IllegalStateError: there is no group_id.
        """
        wanted = [TopicPartition(*one) for one in partitions]
        return await self._running().group_commits().committed(wanted)

    def store_offsets(
        self,
        message: ConsumerRecord[K, V] | None = None,
        offsets: Mapping[TopicPartition, ToCommit] | None = None,
    ) -> None:
        """Declare records done, so that auto commit, or `commit()`, commits them. Sends nothing.

        For `enable_auto_offset_store=False`: handlers may finish in any order and at any time, and
        store what is done up to a record without gaps. Nothing is stored of a record that was
        returned before its partition was given up, and came back: others may have committed more.

        Args:
            message: this record and all before it in its partition.
            offsets: as for `commit`, instead.

        Raises:
            IllegalStateError: the setting is not False, there is no group_id, or a partition is not
                assigned.
        """
        self._running().group_commits().store(message, offsets)

    # The cluster.

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partitions of a topic that is read or subscribed to; None if it is not known."""
        info = self._running().cluster.topics.get(topic)
        return None if info is None or not info.partition_count else {*range(info.partition_count)}

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of any topic with leaders and replicas, fetched from the cluster now.

        Raises:
            UnknownTopicError, AuthorizationError: there is no such topic, or not for us.
            BrokerUnreachableError: no broker answers.
        """
        engine = self._running()
        with engine.calls.call():
            return await engine.cluster.partitions(topic)

    async def topics(self) -> set[str]:
        """All topics that there are and that we may see, fetched from the cluster now.

        Raises:
            BrokerUnreachableError: no broker answers.
        """
        engine = self._running()
        with engine.calls.call():
            return await engine.all_topics()

    # Itself.

    def health(self) -> Health:
        """Whether it does its work, and all that one needs to see why not. Costs microseconds."""
        return health_of(
            self.config,
            self._subscription,
            self._engine,
            self._run_figures(),
            is_closed=self._is_closed,
        )

    def metrics(self) -> Figures:
        """Figures of its group under Java's names, as `rebalance-total`; None where Java has NaN.

        Times are milliseconds unless the name says seconds.
        `kohort.client.metrics.ConsumerCollector` gives them to Prometheus.
        """
        return figures_of(self._subscription, self._engine)

    # Inside.

    def _check_open(self) -> None:
        engine = self._engine
        if self._is_closed or (engine is not None and engine.ending.is_closed):
            raise ConsumerClosedError("this consumer is closed")

    def _check_may_subscribe(self) -> None:
        self._check_open()
        if self._engine is not None:
            self._engine.ending.check_not_unsubscribing()

    def _assigned_by_hand(self) -> frozenset[TopicPartition]:
        is_by_hand = self._subscription.kind is SubscriptionKind.MANUAL
        return self._subscription.assigned if is_by_hand else frozenset()

    def _running(self) -> Engine:
        self._check_open()
        engine = self._engine
        if engine is None:
            raise IllegalStateError("start() the consumer first, or use it with async with")
        return engine

    def _count(self, max_records: int | None) -> int:
        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be 1 or more")
        return max_records or self.config.max_poll_records

    def _chosen(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """These, which must be assigned, or all that are."""
        engine = self._running()
        engine.check_assigned(partitions)
        return [TopicPartition(*one) for one in partitions] or list(engine.positions.assigned)

    def _seek_to(self, partitions: Collection[TopicPartition], spec: OffsetSpec) -> None:
        engine = self._running()
        for partition in self._chosen(partitions):
            engine.positions.seek_to(partition, spec)
        engine.wake()

    async def _ends(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = await self._list_offsets({TopicPartition(*one): spec for one in partitions})
        return {partition: one.offset for partition, one in found.items() if one is not None}

    async def _list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        config = self.config
        isolation = config.isolation
        engine = self._running()
        with engine.calls.call():
            return await list_offsets(
                engine.cluster,
                specs,
                isolation,
                config.default_api_timeout_ms,
                request_timeout_ms=config.request_timeout_ms,
            )
