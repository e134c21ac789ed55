"""A consumer's group membership: carries out the actions that the core's `Membership` requests.

Actions that wait for the network (finding the coordinator, joining, leading, syncing) run in a task
of their own, a *round*, which a poll starts and which continues between polls: a poll that is
cancelled or returns records meanwhile loses nothing, and the other members are not kept waiting.
Actions that involve the application (callbacks, commits before a rebalance) run within polls only.

The heartbeat thread starts heartbeating at each JoinGroup response and stops when membership ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kohort.client.clock import monotonic_ms
from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import BrokerUnreachableError
from kohort.client.core.group.actions import (
    Apply,
    Assign,
    FindCoordinator,
    Idle,
    Join,
    MemberAction,
    Prepare,
    RefreshTopics,
    Sync,
)
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.consumer_heartbeat import (
    JOIN_EPOCH,
    ConsumerHeartbeatRules,
    Report,
)
from kohort.client.core.group.consumer_membership import ConsumerMembership
from kohort.client.core.group.heartbeat import Finding, FindingKind, HeartbeatRules
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.membership import Membership
from kohort.client.core.group.statistics import GroupStatistics, RebalancePhase
from kohort.client.core.group.subscription import Subscription
from kohort.client.group.classic_requests import ClassicRequests
from kohort.client.group.commit_identity import MemberCommits
from kohort.client.group.coordinator import Coordinator, LeaveSender
from kohort.client.group.heartbeat_thread import HeartbeatThread, heartbeats_are_sent_by
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.metadata import MetadataKeeper
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason

logger = logging.getLogger(__name__)

JOIN_ANSWER_TIMEOUT_S: Final = 1.0
"""How long a leaving consumer waits for the response to its first join."""

NEW_ASSIGNMENT: Final = f"{JoinReason.GROUP_REBALANCING.name}: new assignment"
"""The cause that the statistics record for a rebalance that this member did not request."""

THREAD_END_S: Final = 1.0


class MembershipShell:
    """Carries out the actions of one consumer's `Membership`, for the consumer's lifetime."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        coordinator: Coordinator,
        metadata: MetadataKeeper,
        subscription: Subscription,
        rebalance: Rebalance,
        on_progress: Callable[[], None],
    ) -> None:
        """`on_progress` is called when the next poll may find something to do."""
        self.statistics = GroupStatistics()
        self._config = config
        self.coordinator = coordinator
        self._metadata = metadata
        self._subscription = subscription
        self._rebalance = rebalance
        self._on_progress = on_progress
        self._round: asyncio.Task[None] | None = None
        self._beating = NO_MEMBER
        """The identity that the heartbeat thread uses."""
        self._error: BaseException | None = None
        """The error that ended the background task `_round`; the next poll raises it."""
        self._requests = ClassicRequests(config, coordinator, metadata, self.statistics)
        self._heard = asyncio.Event()
        """Set by `_learn`, on findings of the heartbeat thread or a heartbeat for `confirm`."""
        self._learned = asyncio.Event()
        """Set when the membership may have changed; `_wait_joined` waits for it."""
        self._is_started = False
        self._is_leaving = False
        self._reported = Report()
        """The state last passed to the heartbeat thread (consumer group protocol)."""
        self.leave_sender = LeaveSender(coordinator, config.group_instance_id)
        self.idle_until_ms: int | None = None
        """When `advance` should run again even if no event occurs; on the monotonic clock."""
        self.membership: Membership | ConsumerMembership
        self.use_protocol(is_consumer=config.group_protocol == "consumer")

    def use_protocol(self, *, is_consumer: bool) -> None:
        """Choose the group protocol before the first poll: consumer (KIP-848) or classic."""
        config = self._config
        rules: HeartbeatRules
        if is_consumer:
            self.membership = ConsumerMembership(
                config.membership,
                subscription=self._subscription,
                backoff=self._backoff(config),
                topic_ids=self._metadata.cluster.topic_ids,
                new_id=lambda: str(uuid.uuid4()),
            )
            rules = ConsumerHeartbeatRules(config.membership, self._backoff(config))
        else:
            self.membership = Membership(
                config.membership,
                assignors=config.assignors(),
                subscription=self._subscription,
                backoff=self._backoff(config),
            )
            rules = HeartbeatRules(config.membership, self._backoff(config))
        self.commits = MemberCommits(
            self.membership,
            is_joining=lambda: self.is_joining,
            learn=self._learn,
            on_changed=self._changed,
        )
        self.heartbeats: HeartbeatThread = heartbeats_are_sent_by.get()(
            config,
            rules,
            loop=asyncio.get_running_loop(),
            on_findings=self._learn,
        )
        # The thread cannot find the coordinator by itself if all brokers that it knows were
        # replaced.
        self.coordinator.on_found = self.heartbeats.coordinator_found

    @property
    def protocol(self) -> str:
        return "consumer" if isinstance(self.membership, ConsumerMembership) else "classic"

    # Called by polls.

    def polled(self) -> None:
        """Record that the application polls, or is waiting in a poll."""
        self.heartbeats.polled()

    async def advance(self, deadline_s: float) -> None:
        """Perform the membership's due actions; a task performs those that need the network.

        Callbacks run here. Only a commit before a rebalance is waited for, until `deadline_s` (on
        the monotonic clock) at most.

        Raises:
            ConsumerError: the group rejected this member.
            Exception: whatever a callback raised, once the rebalance is complete or `deadline_s`
                has passed.
        """
        self.idle_until_ms = None
        self._learn()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        while self._round is None:
            action = self._next_action()
            match action:
                case Idle(until_ms):
                    self.idle_until_ms = until_ms
                    break
                case Prepare():
                    if not await self._prepare(action, deadline_s):
                        return
                case Apply():
                    if not await self._apply(action, deadline_s):
                        return
                case _:
                    self._begin_round(action)
            self._learn()
        if self._round is None or time.monotonic() >= deadline_s:
            self._rebalance.raise_error()

    async def _prepare(self, action: Prepare, deadline_s: float) -> bool:
        before = self.membership.identity
        if not await self._rebalance.prepare(action, self.membership.mode, deadline_s):
            return False
        if self.membership.identity == before:
            self.membership.prepared()
        return True

    async def _apply(self, action: Apply, deadline_s: float) -> bool:
        is_done = await self._rebalance.apply(
            action, deadline_s, is_valid=lambda: self.membership.is_pending(action)
        )
        if is_done:
            self.membership.applied()
            logger.info(
                "group %s, generation %d; partitions: %d",
                self.coordinator.group_id,
                self.membership.identity.generation,
                len(self._subscription.assigned),
            )
        return is_done

    @property
    def has_expired(self) -> bool:
        """Whether the membership ended because polls were too far apart, and the consumer has not
        joined again. True even before a poll has learned of it.
        """
        expired, identity = self.heartbeats.expired, self.membership.identity
        return expired is not None and (identity == expired or not identity.is_valid)

    async def confirm(self, timeout_s: float) -> bool:
        """Send a heartbeat and return whether it succeeded within `timeout_s`. If so, this member
        was still in the group, so it owned all partitions that were neither revoked nor lost.
        """
        number = self.heartbeats.confirm()
        try:
            async with asyncio.timeout(timeout_s):
                while self.heartbeats.confirmed < number:
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            return False
        return True

    @property
    def is_joining(self) -> bool:
        """Whether a join or sync may be pending at the coordinator."""
        return self._round is not None

    # Rounds.

    def _begin_round(self, action: MemberAction) -> None:
        if not self._is_started:
            self._is_started = True
            self.heartbeats.start()
        self._round = asyncio.create_task(
            self._run_round(action), name=f"rebalance of {self.coordinator.group_id}"
        )
        self._round.add_done_callback(self._round_ended)

    def _round_ended(self, task: asyncio.Task[None]) -> None:
        if self._round is task:
            self._round = None
            if not task.cancelled() and (error := task.exception()) is not None:
                self._error = error
                self.membership.round_failed(monotonic_ms())
        elif not task.cancelled():
            task.exception()
        self._on_progress()

    async def _run_round(self, action: MemberAction) -> None:
        backoff = self._backoff(self._config)
        while True:
            try:
                match action:
                    case FindCoordinator():
                        await self._find_coordinator()
                    case RefreshTopics():
                        await self._metadata.refresh()
                        self.membership.topics_refreshed()
                    case Join() | Assign() | Sync():
                        self._align_heartbeats()
                        assert isinstance(self.membership, Membership)
                        await self._requests.run(action, self.membership)
                    case _:
                        return
            except (DisconnectedError, BrokerUnreachableError) as error:
                # Raised by a metadata refresh. The other requests report their errors to the
                # membership.
                logger.debug("group %s: %s", self.coordinator.group_id, error)
                await asyncio.sleep(backoff.fail() / 1000)
            self._align_heartbeats()
            self._note_state()
            if self._is_leaving:
                return
            action = self._next_action()

    def _next_action(self) -> MemberAction:
        now_ms = monotonic_ms()
        action = self.membership.next_action(now_ms)
        self.statistics.begun(action, self.membership.wish, now_ms)
        if isinstance(self.membership, ConsumerMembership):
            # The consumer group protocol has no action to join: the heartbeat thread joins.
            self._align_consumer_heartbeats(self.membership)
        self._note_state()
        return action

    def _note_state(self) -> None:
        """Update the statistics. Called at each state change, to count even short rebalances."""
        if not self._subscription.is_by_group:
            return
        state, now_ms = self.membership.state, monotonic_ms()
        self.statistics.saw(now_ms, is_settled=state is MemberState.STABLE)
        if not isinstance(self.membership, ConsumerMembership):
            return
        if state is MemberState.STABLE:
            self.statistics.rebalance_ended(now_ms)
        elif state is not MemberState.UNJOINED:
            self.statistics.rebalance_begun(self.membership.wish or NEW_ASSIGNMENT, now_ms)
        if state is MemberState.JOINING:
            self.statistics.entered(RebalancePhase.JOINING, now_ms)

    async def _find_coordinator(self) -> None:
        try:
            code = await self.coordinator.find()
        except (DisconnectedError, BrokerUnreachableError) as error:
            logger.debug("group %s: %s", self.coordinator.group_id, error)
            code = ErrorCode.NETWORK_EXCEPTION
        if code is ErrorCode.NONE:
            self.membership.coordinator_found()
        else:
            self.membership.coordinator_failed(code, monotonic_ms())
            self._metadata.want()

    # Events.

    @property
    def watched_topics(self) -> frozenset[str]:
        """Topics whose metadata this member needs because it leads the group."""
        return self._requests.leading.union(self.membership.watched_topics)

    def metadata_updated(self) -> None:
        self.heartbeats.know_brokers(self._metadata.cluster.addresses)
        watched = self.membership.watched_topics
        self.membership.metadata_updated(self._metadata.cluster.partition_counts(watched))

    def coordinator_lost(self) -> None:
        """Record that a request to the coordinator lost its connection."""
        self.coordinator.lost()
        self.membership.findings([Finding(FindingKind.COORDINATOR_LOST, self.membership.identity)])

    def _learn(self) -> None:
        """Process the findings of the heartbeat thread, such as a lost coordinator."""
        findings = self.heartbeats.take_findings()
        self._heard.set()
        if not findings:
            return
        if any(finding.kind is FindingKind.COORDINATOR_LOST for finding in findings):
            self.coordinator.lost()
        self.membership.findings(findings)
        self._changed()

    def _changed(self) -> None:
        self._align_heartbeats()
        self._note_state()
        self._learned.set()
        self._on_progress()

    def _align_heartbeats(self) -> None:
        """Make the heartbeat thread use the current identity."""
        membership = self.membership
        if isinstance(membership, ConsumerMembership):
            self._align_consumer_heartbeats(membership)
            return
        address = self.coordinator.address
        is_member = membership.state in {MemberState.COMPLETING_REBALANCE, MemberState.STABLE}
        wanted = membership.identity if is_member and address is not None else NO_MEMBER
        if is_member and address is None:
            return  # The thread finds the coordinator by itself.
        if wanted == self._beating:
            return
        self._beating = wanted
        if wanted is NO_MEMBER or address is None:
            self.heartbeats.end()
        else:
            self.heartbeats.begin(wanted, address, self._metadata.cluster.addresses)

    def _align_consumer_heartbeats(self, membership: ConsumerMembership) -> None:
        """Have the heartbeat thread join the group or stop; pass it the state for heartbeats."""
        if membership.state is MemberState.UNJOINED:
            if self._beating is not NO_MEMBER:
                self._beating = NO_MEMBER
                self.heartbeats.end()
            return
        if membership.report is not self._reported:
            self._reported = membership.report
            self.heartbeats.report(self._reported)
        joining = Identity(JOIN_EPOCH, membership.identity.member_id)
        address = self.coordinator.address
        if joining != self._beating and address is not None:
            self._beating = joining
            self.heartbeats.begin(joining, address, self._metadata.cluster.addresses)

    # Leaving.

    async def give_up(self, reason: str, deadline_s: float, *, leaves: bool | None) -> None:
        """End the membership: first the listener is notified, then the group.

        Args:
            leaves: whether to send LeaveGroup (KIP-1092); None: only dynamic members do.
            deadline_s: until when LeaveGroup is retried, on the clock of `time.monotonic`.
        """
        membership = self.membership
        is_lost = not membership.is_member
        try:
            if self._subscription.assigned or not is_lost:
                await self._rebalance.give_up(is_lost=is_lost)
            await self._wait_joined(deadline_s)
        finally:
            # Leave even if the caller is cancelled.
            leaving = self._leave(reason, leaves=leaves, deadline_s=deadline_s)
        if leaving is not None:
            await asyncio.shield(leaving)

    def _leave(
        self, reason: str, *, leaves: bool | None, deadline_s: float
    ) -> asyncio.Task[None] | None:
        """Start sending LeaveGroup; None if none is sent."""
        self._end_round()
        leave = self.membership.leave(reason, leaves=leaves)
        self.statistics.left(monotonic_ms())
        self._align_heartbeats()
        return None if leave is None else self.leave_sender.begin(leave, deadline_s)

    async def _wait_joined(self, deadline_s: float) -> None:
        """Wait for the response to a first join, which has the member id and comes at once. If
        LeaveGroup was sent first, the group would keep the new member until its session expires.
        """
        if self.membership.state is MemberState.JOINING:
            left_s = max(0.0, deadline_s - time.monotonic())
            self._learned.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, JOIN_ANSWER_TIMEOUT_S)):
                    await self._learned.wait()
            return
        task = self._round
        if task is None or self._requests.parked_on is None or self.membership.identity.member_id:
            return
        left_s = max(0.0, deadline_s - time.monotonic())
        self._is_leaving = True
        try:
            await asyncio.wait([task], timeout=min(left_s, JOIN_ANSWER_TIMEOUT_S))
        finally:
            self._is_leaving = False

    async def close(self, timeout_s: float) -> None:
        """End the rounds and the heartbeat thread, and wait until a LeaveGroup has been sent."""
        self._end_round()
        self.heartbeats.stop()
        await self.leave_sender.close(timeout_s)
        # The thread was asked to stop and its request aborted, so this is quick.
        if not await self.heartbeats.wait_stopped(max(timeout_s, THREAD_END_S)):
            logger.warning("the heartbeat thread did not stop in time")

    def _end_round(self) -> None:
        self._error = None
        if self._round is None:
            return
        self._round.cancel()
        self._round = None
        self._requests.abandon()

    @staticmethod
    def _backoff(config: ConsumerConfig) -> Backoff:
        return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
