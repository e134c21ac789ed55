"""The host of all groups: loads, finds, creates, sweeps and unloads them.

All actors share its clock, log, purgatory and observers. Client requests arrive through
`GroupCoordinator`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kohort.broker.coordinator.actor import GroupActor
from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.loading import load_groups, read_group
from kohort.broker.coordinator.offsets_log import OffsetsLog
from kohort.broker.core.coordinator_partitions import ID_CHARACTERS_MAX, partition_of
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.timing_wheel import KeyedTimers
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import RoundRobin, Slice
from kohort.groups.config import GroupConfig
from kohort.groups.effects import TimerKey
from kohort.groups.encoding import types_of_kind
from kohort.groups.events import Event
from kohort.groups.group import Group, NewMembership, Restorers
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import Now
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

M = TypeVar("M")

ANSWERS_MS: Final = 1
ANSWERS_MAX: Final = 100
"""Maximum responses sent per event loop iteration. Writing them to the sockets, at the end of the
iteration, takes as long as creating them."""

CLOSE_WAIT_S: Final = 5.0
"""How long stopping waits for appends in progress."""


class CoordinatorConfig(NamedTuple):
    """Settings of the coordinator itself; `group` has the settings of groups."""

    group: GroupConfig
    commit_timeout_ms: int = 5_000
    sweep_interval_ms: int = 600_000
    groups_max: int = 200_000
    """Maximum number of groups; requests that would create more are refused with
    COORDINATOR_NOT_AVAILABLE."""
    inbox_max: int = 100_000
    """Maximum number of requests of one group that may wait for an append in progress."""


class GroupObserver(Protocol):
    observed: Collection[type[Event]]
    """The classes of events that the observer receives; read once, by `add_observer`."""

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Process an event. Must not submit commands."""
        ...


class GroupHost:
    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        log: OffsetsLog,
        purgatory: Purgatory,
        clock: Clock,
        new_membership: Mapping[GroupKind, NewMembership],
        topic_id: Callable[[str], bytes | None] | None = None,
        observers: Sequence[GroupObserver] = (),
        background_tasks: BackgroundTasks | None = None,
    ) -> None:
        """`new_membership` maps each kind of group to a function that creates an empty membership;
        `topic_id` returns a topic's id or, if it is unknown, None; `background_tasks` runs expiry.
        """
        self.config = config
        self.inbox_max = config.inbox_max
        self.commit_timeout_ms = config.commit_timeout_ms
        self.session_slices = RoundRobin(clock)
        self.answer_slices = RoundRobin(clock, ANSWERS_MS, ANSWERS_MAX)
        self.step_lock = asyncio.Lock()
        """Held by the group whose long steps get the next time slice: at most one such slice runs
        per event loop iteration, whatever the number of groups."""
        self.log = log
        self._purgatory = purgatory
        self._clock = clock
        self._failures = PeerLog(logger, clock)
        """Logs failed appends: on a full disk, every commit of every client causes one."""
        self._background_tasks = background_tasks or BackgroundTasks(clock)
        self.new_membership = new_membership
        """Functions that create an empty membership, by kind of group."""
        self._restorers: Restorers = {
            record_type: new
            for kind, new in new_membership.items()
            for record_type in types_of_kind(kind)
        }
        self._topic_id = topic_id
        self._observers: dict[type[Event], tuple[GroupObserver, ...]] = {}
        """Observers by class of event, so that an event calls only the observers of its class."""
        for observer in observers:
            self.add_observer(observer)
        self._actors: dict[str, GroupActor] = {}
        self.load_times_ms: Sequence[int] = ()
        """Loading time of each __consumer_offsets partition that has records."""
        self._pending: dict[tuple[int, int], set[str]] = {}
        """Ids of groups that may hold offsets of an open transaction, by (__consumer_offsets
        partition, producer id). Removed when the transaction ends in that partition."""
        self._unreadable: frozenset[int] = frozenset()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._is_closed = False

    # Starting and stopping.

    async def start(self) -> None:
        """Load all groups; to be called before requests are served. See `load_groups`."""
        loaded = await load_groups(self.log, self._clock)
        self.load_times_ms = loaded.load_times_ms
        self._unreadable = loaded.unreadable_partitions
        self._pending = loaded.pending
        now = self.now()
        time_slice = Slice(self._clock)
        for group_id, records in loaded.records_by_group.items():
            group = self._new_group(group_id)
            group.restore(records, now, loaded.earlier_by_group.get(group_id, ()))
            self._adopt(group)
            # No client is served yet, but health probes are answered.
            await time_slice.pause()
        count = len(self._actors)
        logger.info("Loaded %d %s", count, "group" if count == 1 else "groups")
        await self._forget_lost_topics(time_slice)
        self.begin()

    def begin(self) -> None:
        """Start the expiry of offsets and groups; to be called instead of `start` if the log is
        empty.
        """
        self._sweeper = self._background_tasks.start("expiry of groups", self._sweep_for_ever)

    async def close(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR, after giving appends in progress time to
        end.
        """
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WAIT_S)
        time_slice = Slice(self._clock)
        for actor in list(self._actors.values()):
            await actor.unload(ErrorCode.NOT_COORDINATOR)
            await time_slice.pause()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def forget_topics(self, topics: Iterable[str]) -> None:
        """Drop the groups' state of deleted topics, group by group, in time slices.

        Groups without state of these topics are skipped, unless commands are pending: these are
        executed first and may commit offsets. Commits for a new topic with the same name are
        executed later.
        """
        await self._forget(dict.fromkeys(topics))

    async def _forget(self, topics: Mapping[str, bytes | None]) -> None:
        def forget(group: Group, now: Now) -> None:
            group.forget_topics(topics)
            group.forget_lost_topics(now)

        command = Command(forget, is_exclusive=True)
        time_slice = Slice(self._clock)
        for actor in list(self._actors.values()):
            group = actor.group
            if not actor.is_at_rest or group.offsets.has_any(topics) or group.has_lost_topics:
                actor.submit(command)
            await time_slice.pause()

    # Reads.

    def group(self, group_id: str) -> Group | None:
        actor = self._actors.get(group_id)
        return None if actor is None else actor.group

    def group_ids(self) -> list[str]:
        """All group ids; a copy, for callers that take several loop iterations."""
        return list(self._actors)

    def living_group(self, group_id: str) -> Group | None:
        """Like `group`, but return None also for a removed group that is still in memory."""
        group = self.group(group_id)
        return None if group is None or group.is_dead else group

    def membership(self, group_id: str, kind: type[M]) -> M | None:
        """Return the membership of a living group, for reading; None if it is not of this kind."""
        group = self.living_group(group_id)
        membership = None if group is None else group.membership
        return membership if isinstance(membership, kind) else None

    def groups(self) -> Iterable[Group]:
        """All groups, for reading; not to be kept across an await."""
        return (actor.group for actor in self._actors.values())

    def read_error(self, group_id: str) -> ErrorCode:
        """Return the error for reads of this group; NONE if it is loaded or does not exist."""
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        actor = self._actors.get(group_id)
        if actor is None:
            return self.error_without_actor(group_id)
        return ErrorCode.NONE if actor.is_available else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def stats(self) -> Counter[str]:
        """Figures for debugging, with the sums of the groups' own gauges."""
        actors = self._actors.values()
        counts: Counter[str] = Counter()
        for actor in actors:
            counts.update(actor.group.gauges())
        counts["groups"] = len(self._actors)
        counts["members"] = sum(actor.group.describe().member_count for actor in actors)
        counts["offsets"] = sum(actor.group.offsets.count for actor in actors)
        counts["waiting_requests"] = sum(actor.waiting_count for actor in actors)
        counts["tasks"] = len(self._tasks)
        counts["faults"] = sum(actor.fault_count for actor in actors)
        return counts

    # Called by actors.

    def now(self) -> Now:
        """The present time on the monotonic and the wall clock."""
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def monotonic_ms(self) -> int:
        """The monotonic time, which session timeouts use."""
        return self._clock.monotonic_ms()

    def partition_of(self, group_id: str) -> int:
        """Return the __consumer_offsets partition of a group."""
        return partition_of(group_id, self.log.partition_count)

    def prepare_log(self) -> Awaitable[None] | None:
        return self.log.prepare()

    def note_pending(self, group_id: str, producer_id: int) -> None:
        """Record that offsets of the producer's transaction are about to be appended for this
        group.
        """
        key = (self.partition_of(group_id), producer_id)
        self._pending.setdefault(key, set()).add(group_id)

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker that was appended to this __consumer_offsets partition."""
        for group_id in self._pending.pop((partition, producer_id), ()):
            group = self.group(group_id)
            if group is not None:
                group.end_transaction(producer_id, commit=commit)

    def new_timers(
        self, on_expired: Callable[[list[TimerKey], int], None], kind: str
    ) -> KeyedTimers[TimerKey]:
        return self._purgatory.keyed_timers(on_expired, kind=kind)

    def start_task(self, work: Any, name: str) -> None:  # noqa: ANN401 - a coroutine of anything.
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)

    def note_append_failure(self, group_id: str, error: KafkaError) -> None:
        self._failures.note("append", "An append for group %s failed: %s", group_id, error)

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        for observer in self._observers.get(event.__class__, ()):
            observer.observe(group_id, event, now)

    def add_observer(self, observer: GroupObserver) -> None:
        """Add an observer; not to be called while events are being delivered."""
        for kind in observer.observed:
            self._observers[kind] = (*self._observers.get(kind, ()), observer)

    def remove_observer(self, observer: GroupObserver) -> None:
        for kind in observer.observed:
            observers = self._observers.get(kind, ())
            self._observers[kind] = tuple(known for known in observers if known is not observer)

    def remove(self, group: Group) -> None:
        actor = self._actors.get(group.group_id)
        if actor is not None and actor.group is group:
            group.close()
            del self._actors[group.group_id]

    def submit(self, group_id: str, command: Command) -> None:
        """Submit a command to the group of this id; create the group if the command says so."""
        ticket = command.ticket
        error = ErrorCode.NOT_COORDINATOR if self._is_closed else NO_ERROR
        actor = self._actors.get(group_id)
        if actor is None and not error:
            error = self.error_without_actor(group_id)
            if not error and not command.creates_group:
                if ticket is not None:
                    ticket.set_result(command.answer_absent)
                return
            if not error and len(group_id) > ID_CHARACTERS_MAX:
                error = ErrorCode.INVALID_GROUP_ID
            if not error and len(self._actors) >= self.config.groups_max:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error:
            if ticket is not None:
                ticket.set_exception(KafkaError(error))
            return
        if actor is None:
            actor = self._adopt(self._new_group(group_id))
        actor.submit(command)

    def reload(self, group_id: str) -> Group:
        records = read_group(self.log, group_id)
        group = self._new_group(group_id)
        group.restore(records, self.now())
        return group

    # Called by the coordinator.

    @property
    def is_closed(self) -> bool:
        """Whether every request is refused from now on."""
        return self._is_closed

    def actor(self, group_id: str) -> GroupActor | None:
        """Return the actor of a group, for requests that are answered immediately."""
        return self._actors.get(group_id)

    def error_without_actor(self, group_id: str) -> ErrorCode:
        """Return the error for a group that is not loaded but may exist; NONE if it does not exist.

        Groups whose part of the log could not be read must not seem to be absent.
        """
        if self._unreadable and self.partition_of(group_id) in self._unreadable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    # Internals.

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self.config.group, self._restorers)

    def _adopt(self, group: Group) -> GroupActor:
        actor = self._actors[group.group_id] = GroupActor(group, self)
        actor.begin()
        return actor

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "%s ended with an internal error", task.get_name(), exc_info=task.exception()
            )

    async def _forget_lost_topics(self, time_slice: Slice) -> None:
        """Drop the groups' state of topics that no longer exist, even if another topic has the name
        now: the broker may have crashed after the deletion of a topic, before `forget_topics` was
        complete.
        """
        if self._topic_id is None:
            return
        living: dict[str, bytes | None] = {}
        lost: dict[str, bytes | None] = {}
        has_lost = False
        for group in list(self.groups()):
            has_lost |= group.has_lost_topics
            for (topic, _), committed in chain(
                list(group.offsets.items()), list(group.offsets.pending_items())
            ):
                if topic not in living:
                    living[topic] = self._topic_id(topic)
                topic_id = living[topic]
                if topic_id is None or not committed.is_of(topic_id):
                    lost[topic] = topic_id
            await time_slice.pause()
        if lost:
            logger.info("Dropping offsets of deleted topics: %s", ", ".join(sorted(lost)))
        if lost or has_lost:
            await self._forget(lost)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.sweep_interval_ms / 1_000)
            await self.sweep()

    async def sweep(self) -> None:
        """Drop expired offsets and groups, a few groups at a time."""
        command = Command(lambda group, now: group.expire_offsets(now), is_exclusive=True)
        time_slice = Slice(self._clock)
        actors = list(self._actors.values())
        actors.reverse()
        while actors:
            # Popped, so that groups are freed one by one: freeing all at once takes too long.
            actor = actors.pop()
            try:
                if not actor.group.is_dead:
                    actor.submit(command)
            except Exception:
                logger.exception("Internal error in the expiry of group %r", actor.group.group_id)
            await time_slice.pause()
