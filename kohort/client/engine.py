"""What goes on behind a `Consumer`: its parts, and the turns in which polls move them on.

A turn does what is due (findings of the heartbeat thread, steps of a rebalance, callbacks, commits,
positions) and never waits for a network; what is to be waited for goes on by itself and wakes
the caller of poll. While nothing is due, records are handed out without a turn.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kohort.client.clock import monotonic_ms
from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    BrokerUnreachableError,
    CommitError,
    ConsumerClosedError,
    ConsumerError,
    IllegalStateError,
    OperationTimedOutError,
    PartitionError,
)
from kohort.client.core.failing import Failures
from kohort.client.core.fetch.buffers import Records
from kohort.client.core.fetch.deserialisers import Deserialisers
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.stored_offsets import StoredOffsets
from kohort.client.core.group.membership import MemberState
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.offsets import EARLIEST
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.fetcher import Fetcher
from kohort.client.group.auto_commit import AutoCommit
from kohort.client.group.callbacks import GRACE_S
from kohort.client.group.commit_callbacks import Offsets
from kohort.client.group.coordinator import Coordinator
from kohort.client.group.listener import RebalanceListener
from kohort.client.group.member import MembershipShell
from kohort.client.group.offsets import GroupOffsets, Outsider
from kohort.client.group.rebalance import Rebalance
from kohort.client.metadata import MetadataConfig, MetadataKeeper
from kohort.client.net.cluster import Cluster
from kohort.client.net.errors import DisconnectedError
from kohort.client.open_calls import OpenCalls

if TYPE_CHECKING:
    from kohort.client.processing.runner import Runner

logger = logging.getLogger(__name__)

T = TypeVar("T")

TURN_S: Final = 0.005
"""How often there is a turn while records are there to be handed out one by one."""

CLOSE_RESERVE: Final = 0.2
"""The part of the time for the end that is kept for telling the group."""

POLL_CALM_MS: Final = 10_000
"""After so long without an error what polls raised is over. What lasts comes more often than that:
it is tried again after retry_backoff_max_ms."""

LAST_COMMIT_SHARE: Final = 0.5
"""The part of it that the last commit may take, so that callbacks have some as well."""

YIELD_EVERY_S: Final = 0.001
"""How long polls that find records may follow each other without letting the loop do other work,
such as receiving the next ones."""


class Engine:
    """The engine of one consumer, on the running loop."""

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
        self.stored = StoredOffsets(self.positions)
        """By `store_offsets`."""
        stores_itself = config.enable_auto_offset_store
        self._processed = self.fetcher.processed if stores_itself else self.stored.committable
        self.offsets: GroupOffsets | None = None
        self.member: MembershipShell | None = None
        self._coordinator: Coordinator | None = None
        self._auto_commit: AutoCommit | None = None
        if config.group_id is not None:
            self._coordinator = Coordinator(self.cluster, config.group_id)
            self.offsets = GroupOffsets(
                self.cluster,
                self._coordinator,
                group_instance_id=config.group_instance_id,
                backoff_ms=(config.retry_backoff_ms, config.retry_backoff_max_ms),
                on_progress=self.wake,
            )
            self.offsets.on_stale_metadata = self.metadata.want
        self.rebalance = Rebalance(
            subscription=subscription,
            positions=self.positions,
            fetcher=self.fetcher,
            offsets=self.offsets,
            processed=self._processed,
            commits_by_itself=config.commits_by_itself,
            commit_timeout_s=config.max_poll_interval_ms / 1000,
            on_progress=self.wake,
        )
        if self.offsets is not None and self._coordinator is not None:
            self._join_parts(self.offsets, self._coordinator)
        self.started_s: float | None = None
        """When it was connected, on the loop's clock."""
        self.poll_failures = Failures()
        """Polls that raised what is not about one partition."""
        self.polled_s: float | None = None
        """When there was a turn last, on the loop's clock."""
        self.turn_due_s = 0.0
        """Records may be handed out without a turn until then."""
        self.is_closing = False
        """No polls any more; callbacks may still commit."""
        self.is_closed = False
        self.calls = OpenCalls()
        """Calls of the application that wait for the cluster."""
        self.runner: Runner | None = None
        """What handles records, while that goes on: it alone reads, and commits."""
        self._reader: asyncio.Task[Any] | None = None
        self._unsubscribing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._patience: asyncio.Timeout | None = None
        """How long the end may take."""
        self._next_yield_s = 0.0
        self._turn = asyncio.Lock()
        self._turning: asyncio.Task[Any] | None = None
        self._positions_task: asyncio.Task[None] | None = None
        self._positions_seen = -1
        self._positions_due_s = 0.0

    def _join_parts(self, offsets: GroupOffsets, coordinator: Coordinator) -> None:
        config = self.config
        self.member = MembershipShell(
            config,
            coordinator=coordinator,
            metadata=self.metadata,
            subscription=self.subscription,
            rebalance=self.rebalance,
            on_progress=self.wake,
        )
        offsets.on_coordinator_lost = self.member.coordinator_lost
        statistics = self.member.statistics
        offsets.on_committed = lambda s: statistics.committed(s * 1000, time.monotonic() * 1000)
        offsets.on_commit_failed = lambda error: statistics.commit_failed(error, monotonic_ms())
        if config.enable_auto_commit:
            self._auto_commit = AutoCommit(
                self._processed,
                offsets,
                interval_ms=config.auto_commit_interval_ms,
                backoff=Backoff(
                    config.retry_backoff_ms, config.retry_backoff_max_ms, random.random
                ),
            )

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnreachableError, AuthenticationError: it cannot be done.
        """
        try:
            await self.metadata.refresh()
        except BaseException as error:
            await self.cluster.close()
            if isinstance(error, DisconnectedError):
                # It let us connect, and hung up: what a listener does that wants SASL.
                raise BrokerUnreachableError(str(error), error.code) from error
            raise
        self.started_s = time.monotonic()
        self.metadata.start()
        self.fetcher.start()
        self.subscribed()

    # What the subscription has become.

    def subscribed(self) -> None:
        """`subscribe` or `assign` was called: what polls raised before is dealt with."""
        self.poll_failures.succeeded()
        if self.member is not None:
            self.member.membership.subscribed_anew()
        kind = self.subscription.kind
        self.metadata.expect(
            self.subscription.topics if kind is SubscriptionKind.TOPICS else (),
            self.subscription.assigned if kind is SubscriptionKind.MANUAL else (),
        )
        if self.offsets is not None:
            is_by_group = self.subscription.is_by_group
            member = self.member if is_by_group else None
            self.offsets.committer = Outsider() if member is None else member.commits
        if kind is SubscriptionKind.MANUAL:
            is_ours = self.runner is None
            if self._auto_commit is not None and is_ours and self.positions.assigned:
                self._auto_commit.begin(time.monotonic())
            self.rebalance.own(self.subscription.assigned)
            if any(one.topic not in self.cluster.topics for one in self.subscription.assigned):
                self.metadata.want()
        elif kind is SubscriptionKind.PATTERN:
            self.metadata.want()
        self._own_whole_topics()
        self.wake()

    def _own_whole_topics(self) -> None:
        """Without a group, what is subscribed to is read whole, partitions of the future included:
        these from their beginning, since all that is in them is new.
        """
        if not self.subscription.is_alone:
            return
        owned = {one for one in self.subscription.assigned if self.subscription.wants(one.topic)}
        had = {one.topic for one in owned}
        partitions = self.cluster.partition_counts(self.subscription.topics)
        for topic, count in partitions.items():
            owned.update(TopicPartition(topic, index) for index in range(count))
        if owned == self.subscription.assigned:
            return
        added = owned - self.subscription.assigned
        self.rebalance.own(frozenset(owned))
        for one in added:
            if one.topic in had:
                self.positions.seek_to(one, EARLIEST)

    def _wanted_topics(self) -> Collection[str] | None:
        if self.subscription.kind is SubscriptionKind.PATTERN:
            return None
        wanted = set(self.subscription.topics)
        wanted.update(one.topic for one in self.subscription.assigned)
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

    # Turns.

    def wake(self) -> None:
        """Something is to be done: have a turn soon."""
        self.turn_due_s = 0.0
        self.fetcher.wake()

    async def turn(self, deadline_s: float) -> None:
        """Do what is due. Callbacks of the application run here.

        Raises:
            ConsumerError, and what callbacks raise.
        """
        self._check_open()
        async with self._turn:
            self._turning = asyncio.current_task()
            try:
                await self._do_turn(deadline_s)
            except BaseException:
                # What was due still is, before more records are handed out.
                self.turn_due_s = 0.0
                raise
            finally:
                self._turning = None

    def _check_open(self) -> None:
        self._check_caller()
        if self.is_closing:
            raise ConsumerClosedError("this consumer is closed")

    def _check_caller(self) -> None:
        caller = asyncio.current_task()
        callbacks = {self._turning, self.rebalance.callbacks.task}
        if self.offsets is not None:
            callbacks.add(self.offsets.callbacks.task)
        if caller is not None and caller in callbacks:
            raise IllegalStateError("a callback of a consumer cannot poll it")

    async def _do_turn(self, deadline_s: float) -> None:
        now_s = time.monotonic()
        self.polled_s = now_s
        # First, so that whatever happens meanwhile can bring the next one forward.
        self.turn_due_s = now_s + TURN_S
        if self.member is not None:
            self.member.polled()
        if self.offsets is not None and self.offsets.callbacks.are_due:
            await self.offsets.callbacks.tell()
        self.metadata.raise_error()
        if self.member is not None:
            await self.member.advance(deadline_s)
        if self._auto_commit is not None and self.runner is None:
            self._auto_commit.polled(now_s)
        self._update_positions(now_s)

    def _update_positions(self, now_s: float) -> None:
        """See that each partition gets a position; raise what came of the attempt before."""
        task = self._positions_task
        if task is not None:
            if not task.done():
                return
            self._positions_task = None
            if not task.cancelled() and (error := task.exception()) is not None:
                self._positions_due_s = now_s + self.config.retry_backoff_ms / 1000
                self._positions_seen = -1
                raise error
        is_changed = self._positions_seen != self.positions.version
        if not is_changed or now_s < self._positions_due_s:
            return
        self._positions_seen = self.positions.version
        placeless = [*self.positions.missing_position(), *self.positions.awaiting_reset()]
        self.fetcher.state.failures.placeless(placeless, monotonic_ms())
        if not placeless:
            return
        lookup = None if self.offsets is None else self.offsets.fetch_patiently
        self._positions_task = asyncio.create_task(
            self.fetcher.update_positions(lookup), name="look up positions"
        )
        self._positions_task.add_done_callback(lambda _: self.wake())

    # Records that are handled by a runner.

    @contextmanager
    def handed_to(self, runner: Runner, listener: RebalanceListener) -> Iterator[None]:
        """Within it this task alone reads, records as bytes, and `runner` says what to commit.

        `listener` is told about partitions before the application's is.
        """
        self.runner, self._reader = runner, asyncio.current_task()
        self.rebalance.committer = listener
        read_by = self.deserialisers.key, self.deserialisers.value
        self.deserialisers.key = self.deserialisers.value = None
        try:
            yield
        finally:
            self.deserialisers.key, self.deserialisers.value = read_by
            self.rebalance.committer = None
            self.runner = self._reader = None

    def check_reader(self) -> None:
        """Raise an IllegalStateError if records are handled, and this is not who reads them."""
        if self.runner is not None and asyncio.current_task() is not self._reader:
            raise IllegalStateError("run() reads this consumer; only its handlers get records")

    def to_commit(self) -> Offsets:
        """What a commit without arguments commits."""
        return self.returned() if self.runner is None else self.runner.committable()

    # Waiting for records.

    async def poll(
        self,
        timeout_s: float | None,
        take: Callable[[], T],
        only: frozenset[TopicPartition] | None = None,
    ) -> T | None:
        """What `take` finds, as soon as it finds something; None if the time is over first.

        `only`: the partitions that `take` takes from, if not from all.
        """
        self._check_open()
        self.check_reader()
        self.fetcher.mark_processed(only)
        if self.positions.begin_reading(only):
            self.fetcher.wake()
        try:
            with self.calls.call():
                found = await self._poll(timeout_s, take, only)
            self.poll_failures.calm(monotonic_ms(), POLL_CALM_MS)
        except (IllegalStateError, PartitionError):
            raise
        except Exception as error:
            self.poll_failures.failed(error, monotonic_ms())
            raise
        else:
            return found
        finally:
            if self.positions.end_reading(only):
                self.fetcher.wake()

    async def _poll(
        self,
        timeout_s: float | None,
        take: Callable[[], T],
        only: frozenset[TopicPartition] | None,
    ) -> T | None:
        if time.monotonic() >= self._next_yield_s:
            # Who always finds records does not wait, but others need the loop too.
            await self.fetcher.let_loop_receive()
            self._next_yield_s = time.monotonic() + YIELD_EVERY_S
        deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self.subscription.kind is SubscriptionKind.NONE and not self.is_closing:
                raise IllegalStateError("there is nothing to read: subscribe() or assign() first")
            await self.turn(deadline_s)
            # What is returned after this would count as processed by the last commit.
            self._check_open()
            if found := take():
                return found
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            if self.turn_due_s:
                await self.fetcher.wait(min(left_s, self._quiet_s(time.monotonic())), only)

    def _quiet_s(self, now_s: float) -> float:
        """How long nothing is due, if nothing happens."""
        # Waiting is polling too, and has to be shown.
        quiet_s = self.config.max_poll_interval_ms / 3000
        if self.member is not None and self.member.idle_until_ms is not None:
            quiet_s = min(quiet_s, self.member.idle_until_ms / 1000 - now_s)
        if self._auto_commit is not None and self.runner is None:
            quiet_s = min(quiet_s, self._auto_commit.idle_until_s - now_s)
        if self._positions_due_s > now_s:
            quiet_s = min(quiet_s, self._positions_due_s - now_s)
        return max(quiet_s, 0.001)

    # The end.

    async def unsubscribe(self, timeout_s: float) -> None:
        """Give everything up, and leave the group.

        One that is cancelled while it commits has not happened. After that it happens, in a task of
        its own: the listener is told, and then the group.
        """
        self._check_open()
        deadline_s = time.monotonic() + timeout_s
        if self._unsubscribing is None:
            async with self._turn:
                self._turning = asyncio.current_task()
                try:
                    await self._commit_last(deadline_s)
                finally:
                    self._turning = None
            self._unsubscribing = asyncio.create_task(
                self._unsubscribe(deadline_s), name="unsubscribe a consumer"
            )
        await asyncio.shield(self._unsubscribing)
        self.rebalance.raise_error()

    async def _unsubscribe(self, deadline_s: float) -> None:
        async with self._turn:
            try:
                await self._give_up("the consumer unsubscribed", deadline_s, leaves=None)
            finally:
                self._unsubscribing = None
                self.subscription.unsubscribe()
                self.rebalance.own(frozenset())
                self.subscribed()

    def check_not_leaving(self) -> None:
        """Raise an IllegalStateError while an unsubscribe is under way, which would undo it."""
        if self._unsubscribing is not None:
            raise IllegalStateError("unsubscribe() is not over yet; wait for it")

    async def _give_up(self, reason: str, deadline_s: float, *, leaves: bool | None) -> None:
        member = self.member
        if member is None or not self.subscription.is_by_group:
            return
        membership = member.membership
        is_lost = membership.state is not MemberState.STABLE or not membership.identity.is_valid
        try:
            if self.subscription.assigned or not is_lost:
                await self.rebalance.give_up(is_lost=is_lost)
            await member.wait_member_id(deadline_s)
        finally:
            # A caller that gives up waiting does not keep the group from being told.
            goodbye = member.leave(reason, leaves=leaves, deadline_s=deadline_s)
        if goodbye is not None:
            await asyncio.shield(goodbye)

    async def _commit_last(self, deadline_s: float, *, commits_all: bool = True) -> None:
        if not self.config.commits_by_itself or self.offsets is None or self.runner is not None:
            return
        held = self.positions.hold(self.positions.assigned)
        wanted = self.returned() if commits_all else self._processed()
        if not wanted:
            return
        left_s = max(0.0, deadline_s - time.monotonic())
        try:
            await self.offsets.commit(wanted, left_s, is_automatic=True)
        except ConsumerError as error:
            logger.warning("the last positions were not committed: %s", error)
        except asyncio.CancelledError:
            self.positions.release(held)
            self.wake()
            raise

    def returned(self) -> Offsets:
        """What is committed if nothing else is said: all that was returned, or all that is stored
        if the application stores.
        """
        stores_itself = self.config.enable_auto_offset_store
        return self.positions.consumed() if stores_itself else self.stored.committable()

    async def close(
        self, timeout_s: float, *, leaves: bool | None, commits_all: bool = True
    ) -> None:
        """End everything within `timeout_s`, callbacks included; what is not done by then is left.

        A caller that is cancelled meanwhile ends it at once, without what waits for the network.

        Args:
            leaves: whether to tell the group (KIP-1092).
            commits_all: whether auto commit takes all that was returned for processed; else not
                what was returned last.

        Raises:
            whatever a callback raises, after everything has ended.
        """
        self._check_caller()
        if self._closing is None:
            # From this moment on: who stops has nothing in hand, and is given nothing more.
            self.is_closing = True
            self.wake()
            self._closing = asyncio.create_task(
                self._close(timeout_s, leaves=leaves, commits_all=commits_all),
                name="close a consumer",
            )
            # A caller that stops, and is cancelled, does not hear of an error.
            self._closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        while not self._closing.done():
            try:
                await asyncio.wait([self._closing])
            except asyncio.CancelledError:
                self._hurry()
                await asyncio.wait([self._closing])
                raise
        self._closing.result()
        self.rebalance.raise_error()

    def _hurry(self) -> None:
        """Wait no longer for the network or for callbacks, which are cancelled."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
        self.rebalance.callbacks.end_by(0.0)
        if self.member is not None:
            self.member.give_up_goodbye()

    async def _close(self, timeout_s: float, *, leaves: bool | None, commits_all: bool) -> None:
        deadline_s = time.monotonic() + timeout_s
        # So that there is time for telling the group after one that does not return.
        callbacks_end_s = deadline_s - CLOSE_RESERVE * timeout_s
        self.rebalance.callbacks.end_by(callbacks_end_s)
        self.calls.end(but=self.rebalance.callbacks.task)
        self.wake()
        try:
            async with asyncio.timeout(timeout_s + GRACE_S) as self._patience:
                await self.fetcher.stop_fetching()
                async with self._turn:
                    await self._give_up_positions()
                    commit_end_s = deadline_s - (1 - LAST_COMMIT_SHARE) * timeout_s
                    await self._commit_last(commit_end_s, commits_all=commits_all)
                    await self._give_up("the consumer is closed", deadline_s, leaves=leaves)
        except TimeoutError:
            logger.warning("the consumer was closed before all was done that is done at the end")
        finally:
            self._patience = None
            self.is_closed = True
            # What a callback still asks for is of no use to it now.
            self.calls.end(but=None)
            self.rebalance.callbacks.close()
            await self._close_parts(max(0.0, deadline_s - time.monotonic()))
        if self.offsets is not None:
            await self.offsets.callbacks.close(max(GRACE_S, deadline_s - time.monotonic()))

    async def _give_up_positions(self) -> None:
        if self._positions_task is not None:
            self._positions_task.cancel()
            await asyncio.gather(self._positions_task, return_exceptions=True)

    async def _close_parts(self, timeout_s: float) -> None:
        self.rebalance.close()
        await self.fetcher.close()
        await self.metadata.close()
        if self.offsets is not None:
            await self.offsets.close()
        if self.member is not None:
            await self.member.close(timeout_s)
        if self._coordinator is not None:
            self._coordinator.close()
        await self.cluster.close()

    # For the rest of the interface.

    async def poll_only(
        self, partitions: Collection[TopicPartition], timeout_s: float | None, max_records: int
    ) -> Records:
        """Records of these partitions, which are to be assigned; {} if the time is over first.

        Raises:
            IllegalStateError: one of them is not assigned, or none of them is any more.
        """
        self.check_assigned(partitions)
        chosen = frozenset(partitions)

        def take() -> Records:
            if self._is_settled and chosen.isdisjoint(self.positions.assigned):
                self.check_assigned(partitions)  # Nothing would ever come.
            return self.fetcher.take(max_records, chosen)

        return await self.poll(timeout_s, take, chosen) or {}

    @property
    def _is_settled(self) -> bool:
        """Whether what is assigned now stays so, if nothing happens."""
        if self.member is None or not self.subscription.is_by_group:
            return True
        return self.member.membership.is_settled

    def group_offsets(self) -> GroupOffsets:
        """Raises an IllegalStateError if there is no group."""
        if self.offsets is None:
            raise IllegalStateError("committed positions belong to a group; set group_id")
        return self.offsets

    async def find_position(self, partition: TopicPartition) -> int:
        """Wait for it, without the group's steps: callbacks may ask too.

        Raises:
            IllegalStateError: the partition is not assigned, or not any more.
            OperationTimedOutError: not within default_api_timeout_ms.
        """
        timeout_s = self.config.default_api_timeout_ms / 1000
        lookup = None if self.offsets is None else self.offsets.fetch_patiently
        try:
            async with asyncio.timeout(timeout_s):
                while (found := self.positions.position(partition)) is None:
                    await self.fetcher.update_positions(lookup)
                    await self.fetcher.wait_positions([partition], timeout_s)
        except TimeoutError:
            raise OperationTimedOutError(
                f"the position in {partition.topic}-{partition.partition} could not be found out"
                f" within {timeout_s:g} s; is the broker that leads it there?"
            ) from None
        return found

    async def all_topics(self) -> set[str]:
        """Fetched from the cluster now."""
        await self.cluster.refresh(None)
        return {name for name, info in self.cluster.topics.items() if info.partition_count}

    def check_committable(self, offsets: Offsets) -> None:
        """See that a member commits what it owns: another one's position would be overwritten.

        Raises:
            IllegalStateError: one of the partitions is not assigned to this consumer by its group.
        """
        member = self.member if self.subscription.is_by_group else None
        if member is None or self.config.commit_unassigned:
            return
        try:
            member.commits.commit_identity()
        except CommitError:
            return  # The commit will say that, which says more.
        strange = offsets.keys() - self.subscription.assigned
        if strange:
            names = ", ".join(f"{one.topic}-{one.partition}" for one in sorted(strange)[:10])
            raise IllegalStateError(
                f"{names} is not assigned to this consumer, so the group may have given it to"
                " another one; set commit_unassigned=True to commit it all the same"
            )

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Raise an IllegalStateError for the first that is not assigned."""
        for partition in partitions:
            self.positions.state(partition)
