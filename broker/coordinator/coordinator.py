"""Finds the group a request speaks to, and looks after all groups: loading, sweeping, unloading.

Promises: all groups are loaded before the first request is served; a group's requests are stepped
in the order in which they came; every request is answered exactly once, also when the broker stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from broker.clock import Clock
from broker.coordinator.actor import Command, GroupActor
from broker.coordinator.loading import load_groups, read_group
from broker.coordinator.offsets_log import OffsetsLog, partition_of
from broker.coordinator.ticket import Ticket
from broker.core.group.classic_group import ClassicGroup
from broker.core.group.config import GroupConfig
from broker.core.group.effects import TimerKey
from broker.core.group.events import Event
from broker.core.group.join import check_request
from broker.core.group.offsets import error_without_group
from broker.core.group.protocols import PartitionCount
from broker.core.group.records import DurableRecord
from broker.core.group.requests import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DeleteOffsetsResult,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from broker.core.group.states import GroupState
from broker.core.keyed_timers import KeyedTimers
from broker.core.purgatory import Purgatory
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

GROUPS_PER_TURN: Final = 100
"""Groups that a sweep looks at before others get the loop."""

CLOSE_PATIENCE_S: Final = 5.0
"""How long a stop waits for appends under way."""


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What the coordinator itself is told; `group` goes to the groups."""

    group: GroupConfig
    commit_timeout_ms: int = 5_000
    sweep_interval_ms: int = 600_000
    groups_max: int = 200_000
    """Groups that may be there at once; more are refused with COORDINATOR_NOT_AVAILABLE."""
    inbox_max: int = 100_000
    """Requests of one group that may wait for an append under way."""


class GroupObserver(Protocol):
    """Somebody who watches all groups: the history, the metrics."""

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Must not call back."""
        ...


class GroupCoordinator:
    """All groups of this broker."""

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        log: OffsetsLog,
        purgatory: Purgatory,
        clock: Clock,
        new_member_id: Callable[[str], str],
        partition_count: PartitionCount | None = None,
        observers: Sequence[GroupObserver] = (),
    ) -> None:
        """`new_member_id` makes an id that was never used, `partition_count` tells how many
        partitions a topic has.
        """
        self.config = config
        self.inbox_max = config.inbox_max
        self.commit_timeout_ms = config.commit_timeout_ms
        self._log = log
        self._purgatory = purgatory
        self._clock = clock
        self._new_member_id = new_member_id
        self._partition_count = partition_count
        self._observers = tuple(observers)
        self._actors: dict[str, GroupActor] = {}
        self._unreadable: frozenset[int] = frozenset()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False

    # Beginning and end.

    async def start(self) -> None:
        """Load all groups; to be called before requests are served."""
        loaded = await load_groups(self._log)
        self._unreadable = loaded.unreadable_partitions
        now = self.now()
        for group_id, records in loaded.records_by_group.items():
            group = self._make_group(group_id)
            group.restore(records, now)
            self._adopt(group)
        logger.info("Loaded %d groups", len(self._actors))
        self._forget_lost_topics()
        self._sweeper = asyncio.create_task(self._sweep_for_ever(), name="sweep of groups")

    async def close(self) -> None:
        """Answer whoever waits NOT_COORDINATOR, after appends under way had a chance to end."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_PATIENCE_S)
        for actor in list(self._actors.values()):
            actor.unload(ErrorCode.NOT_COORDINATOR)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Requests. Those that return a ticket are answered through it.

    def join(self, group_id: str, request: JoinRequest) -> Ticket[JoinResult]:
        """JoinGroup."""
        ticket: Ticket[JoinResult] = Ticket()
        error = check_request(group_id, request, self.config.group)
        if error:
            ticket.answer(JoinResult(error, request.member_id))
            return ticket
        command = Command(
            lambda group, now: group.join(request, ticket, now),
            ticket,
            absent_answer=JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id),
            creates_group=not request.member_id,
        )
        return self._send(group_id, command, ticket)

    def sync(self, group_id: str, request: SyncRequest) -> Ticket[SyncResult]:
        """SyncGroup."""
        ticket: Ticket[SyncResult] = Ticket()
        if not group_id:
            ticket.answer(SyncResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, now: group.sync(request, ticket, now),
            ticket,
            absent_answer=SyncResult(ErrorCode.UNKNOWN_MEMBER_ID),
        )
        return self._send(group_id, command, ticket)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Heartbeat; never waits."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self._actors.get(group_id)
        if actor is None:
            return self._error_of_partition(group_id) or ErrorCode.UNKNOWN_MEMBER_ID
        return actor.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, entries: Sequence[LeaveEntry]) -> Ticket[LeaveResult]:
        """LeaveGroup."""
        ticket: Ticket[LeaveResult] = Ticket()
        if not group_id:
            ticket.answer(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, now: group.leave(entries, ticket, now),
            ticket,
            absent_answer=LeaveResult(entries=(ErrorCode.UNKNOWN_MEMBER_ID,) * len(entries)),
        )
        return self._send(group_id, command, ticket)

    def commit(
        self, group_id: str, request: CommitRequest, *, names_group_errors: bool
    ) -> Ticket[CommitResult]:
        """OffsetCommit; `names_group_errors` from v9 on."""
        ticket: Ticket[CommitResult] = Ticket()
        error = error_without_group(request, names_group_errors=names_group_errors)
        command = Command(
            lambda group, now: group.commit(request, ticket, now),
            ticket,
            absent_answer=CommitResult((error,) * len(request.offsets)),
            creates_group=not error,
        )
        return self._send(group_id, command, ticket)

    def delete_group(self, group_id: str) -> Ticket[ErrorCode]:
        """DeleteGroups, one of them."""
        ticket: Ticket[ErrorCode] = Ticket()
        command = Command(
            lambda group, _: group.delete(ticket),
            ticket,
            absent_answer=ErrorCode.GROUP_ID_NOT_FOUND,
            is_exclusive=True,
        )
        return self._send(group_id, command, ticket)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Ticket[DeleteOffsetsResult]:
        """OffsetDelete, of partitions that exist."""
        ticket: Ticket[DeleteOffsetsResult] = Ticket()
        if not group_id:
            ticket.answer(DeleteOffsetsResult(ErrorCode.INVALID_GROUP_ID))
            return ticket
        command = Command(
            lambda group, _: group.delete_offsets(partitions, ticket),
            ticket,
            absent_answer=DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND),
            is_exclusive=True,
        )
        return self._send(group_id, command, ticket)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Topics were deleted: drop what was committed for them, group by group."""
        names = frozenset(topics)
        command = Command(lambda group, _: group.forget_topics(names), is_exclusive=True)
        for actor in list(self._actors.values()):
            if not names.isdisjoint(actor.group.offsets.topics()):
                actor.submit(command)

    # Reads, of what is durable; they never wait.

    def read_error(self, group_id: str) -> ErrorCode:
        """Why nothing can be said about this group; NONE if it can, also if there is none."""
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self._actors.get(group_id)
        if actor is not None and not actor.is_available:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._error_of_partition(group_id)

    def group(self, group_id: str) -> ClassicGroup | None:
        """To look at, not to step."""
        actor = self._actors.get(group_id)
        return None if actor is None else actor.group

    def groups(self) -> Iterable[ClassicGroup]:
        """All groups, to look at; not to be kept across an await."""
        return (actor.group for actor in self._actors.values())

    def describe(self, group_id: str) -> GroupDescription | None:
        """None if there is no such group."""
        group = self.group(group_id)
        return None if group is None else group.describe()

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The position of a group, None without one."""
        group = self.group(group_id)
        return None if group is None else group.committed(topic, partition)

    def stats(self) -> dict[str, int]:
        """For people who debug."""
        actors = self._actors.values()
        return {
            "groups": len(self._actors),
            "members": sum(len(actor.group.roster) for actor in actors),
            "unused_ids": sum(len(actor.group.roster.pending) for actor in actors),
            "offsets": sum(actor.group.offsets.count for actor in actors),
            "waiting_requests": sum(actor.waiting_count for actor in actors),
            "tasks": len(self._tasks),
        }

    # For the actors.

    def now(self) -> Now:
        """Both clocks."""
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def append(
        self, group_id: str, records: Sequence[DurableRecord], wall_ms: int
    ) -> Awaitable[None] | None:
        partition = partition_of(group_id, self._log.partition_count)
        return self._log.append(partition, records, wall_ms=wall_ms)

    def new_timers(
        self, on_expired: Callable[[list[TimerKey], int], None], kind: str
    ) -> KeyedTimers[TimerKey]:
        return self._purgatory.keyed_timers(on_expired, kind=kind)

    def start_task(self, work: Any, name: str) -> None:  # noqa: ANN401 - see ActorHost.
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        for observer in self._observers:
            observer.observe(group_id, event, now)

    def remove(self, actor: GroupActor) -> None:
        if self._actors.get(actor.group.group_id) is actor:
            del self._actors[actor.group.group_id]

    def submit(self, group_id: str, command: Command) -> None:
        """Have the group of this id take the command in its turn; make it if need be."""
        ticket = command.ticket
        error = ErrorCode.NOT_COORDINATOR if self._is_closed else ErrorCode.NONE
        actor = self._actors.get(group_id)
        if actor is None and not error:
            error = self._error_of_partition(group_id)
            if not error and not command.creates_group:
                if ticket is not None:
                    ticket.answer(command.absent_answer)
                return
            if not error and len(self._actors) >= self.config.groups_max:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error:
            if ticket is not None:
                ticket.fail(KafkaError(error))
            return
        if actor is None:
            actor = self._adopt(self._make_group(group_id))
        actor.submit(command)

    def reload(self, group_id: str) -> ClassicGroup:
        group = self._make_group(group_id)
        group.restore(read_group(self._log, group_id), self.now())
        return group

    # Within.

    def _send(self, group_id: str, command: Command, ticket: Ticket[Any]) -> Ticket[Any]:
        self.submit(group_id, command)
        return ticket

    def _make_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(
            group_id,
            self.config.group,
            new_member_id=self._new_member_id,
            partition_count=self._partition_count,
        )

    def _adopt(self, group: ClassicGroup) -> GroupActor:
        actor = self._actors[group.group_id] = GroupActor(group, self)
        actor.begin()
        return actor

    def _error_of_partition(self, group_id: str) -> ErrorCode:
        """Groups whose part of the log could not be read must not seem to be absent."""
        if self._unreadable:
            partition = partition_of(group_id, self._log.partition_count)
            if partition in self._unreadable:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "%s ended by a mistake of ours", task.get_name(), exc_info=task.exception()
            )

    def _forget_lost_topics(self) -> None:
        """Finish what a crash may have cut short: offsets go with their topic."""
        if self._partition_count is None:
            return
        topics = {topic for group in self.groups() for topic in group.offsets.topics()}
        lost = {topic for topic in topics if self._partition_count(topic) is None}
        if lost:
            logger.info("Dropping offsets of topics that are gone: %s", ", ".join(sorted(lost)))
            self.forget_topics(lost)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_interval_ms / 1_000)
            await self.sweep()

    async def sweep(self) -> None:
        """Have every group drop what has expired, a few of them at a time."""
        command = Command(lambda group, now: group.expire_offsets(now), is_exclusive=True)
        for count, actor in enumerate(list(self._actors.values()), start=1):
            if actor.group.state is not GroupState.DEAD:
                actor.submit(command)
            if count % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
