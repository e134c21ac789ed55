"""Reads the assigned partitions ahead of the user, from all brokers at the same time.

What arrives waits, as bytes, until it is taken; records are made of it only then. How much may wait
is bounded (`FetchConfig.prefetch_bytes_limit`), so a consumer that does not poll stops reading.

What to ask whom is decided in `client.core.fetch_plan`, where everybody stands is kept in
`client.core.positions`, and what waits is in `client.fetch_buffers`. Here are the requests, and
what becomes of their answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from client.core.backoff import Backoff
from client.core.errors import ConsumerError, OffsetOutOfRangeError, RecordError, error_for
from client.core.fetch_plan import FetchLimits, FetchPlan, PlannedFetch
from client.core.offsets import OffsetAndMetadata, OffsetSpec
from client.core.partitions import TopicPartition
from client.core.positions import PartitionState, Positions
from client.fetch_buffers import FetchBuffers, Records
from client.fetch_config import FetchConfig
from client.fetch_requests import (
    PASSING,
    STALE,
    Asked,
    SentFetch,
    answers_in,
    fetch_request,
    version_for,
)
from client.fetched import (
    NO_DESERIALISERS,
    Aborted,
    Deserialisers,
    Fetched,
    IsolationLevel,
    ReadOptions,
)
from client.leader_checks import PositionChecks
from client.memory import have_freed_memory_kept
from client.net.cluster import Cluster
from client.net.connection import Connection, DisconnectedError
from client.records import AnyRecord
from client.resets import OffsetResets, TopicIds, begin_anew
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

__all__ = [
    "CommittedLookup",
    "Deserialisers",
    "FetchConfig",
    "Fetcher",
    "IsolationLevel",
    "Records",
]

logger = logging.getLogger(__name__)

RECEIVING_ROUNDS_MAX: Final = 32
"""So that nobody who sends without end keeps records that are here from being handed out."""

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]],
    Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]],
]
"""Asks the group for committed offsets; None for a partition without one."""


class _Promise(NamedTuple):
    """A request on its way."""

    connection: Connection
    sent: SentFetch
    answer: asyncio.Future[Any]


class Fetcher:
    """That of one consumer, on one event loop. `take` and `next_record` never wait.

    `positions` may be changed by the consumer at any time (seek, pause, ...); it calls `wake`
    afterwards, or `assignment_changed` after `Positions.set_assigned`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        deserialisers: Deserialisers = NO_DESERIALISERS,
        *,
        on_metadata_wanted: Callable[[], None],
    ) -> None:
        """`on_metadata_wanted` is called, with a backoff in between, when a partition has no known
        leader or the wrong one. It returns at once, and has the metadata refreshed and `wake`
        called after that (without that call it takes a backoff longer).
        """
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._options = ReadOptions(config.check_crcs, config.inflated_bytes_limit, deserialisers)
        self._on_metadata_wanted = on_metadata_wanted
        self._plan = FetchPlan(
            FetchLimits(
                config.fetch_max_bytes,
                config.max_partition_fetch_bytes,
                config.prefetch_bytes_limit,
            )
        )
        self._buffers = FetchBuffers(positions, on_less=self._has_less, on_failed=self._fail)
        self._errors: dict[TopicPartition, tuple[int, ConsumerError]] = {}
        """To be raised, with the fence of the position that they are about."""
        self._failure: BaseException | None = None
        """To be raised, about nothing in particular."""
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._topic_ids = TopicIds()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resets = OffsetResets(
            cluster,
            positions,
            config,
            on_metadata_wanted=on_metadata_wanted,
            on_found=self.wake,
            on_failed=self._failed,
        )
        self._checks = PositionChecks(
            cluster,
            positions,
            config,
            default_reset=self._default_reset,
            on_metadata_wanted=on_metadata_wanted,
            on_changed=self.wake,
            on_failed=self._fail,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._is_running = False

    # For the consumer.

    def start(self) -> None:
        """Begin to fetch whatever has a position."""
        have_freed_memory_kept()
        self._is_running = True
        self.assignment_changed()

    async def close(self) -> None:
        """Give up requests under way and forget all that waits. May be called twice."""
        self._is_running = False
        self._stop_timer()
        for task in self._tasks:
            task.cancel()
        closing = (self._resets.close(), self._checks.close())
        await asyncio.gather(*self._tasks, *closing, return_exceptions=True)
        self._buffers.clear()
        self._errors.clear()
        self._failure = None
        self._changed.set()

    def take(self, max_records: int) -> Records:
        """Records that are here, in order within each partition, `max_records` at most in all.

        Positions move past them. Empty if there are none, which may be although `wait` returned:
        what came was not for users (markers, aborted transactions).

        Raises:
            RecordError: the next record of a partition cannot be given out, because its batch is
                corrupt or too large, or its deserialiser raises; the position stays. Seek past it
                to go on.
            OffsetOutOfRangeError: and no policy for it.
            AuthorizationError: the topic may not be read.

        Such an error is raised once, and never instead of records that were there before it. If it
        lasts it comes again, because the partition is fetched again.
        """
        self._raise_errors()
        taken = self._buffers.take(max_records)
        if not taken:
            self._raise_errors()
        return taken

    def next_record(self) -> AnyRecord | None:
        """As `take(1)`, for reading one by one: the position moves by this record only.

        None: there is none here; `wait` for it.
        """
        record = self._buffers.next_record()
        if record is None:
            self._raise_errors()
        return record

    @property
    def waiting_bytes(self) -> int:
        """What was fetched and not taken yet."""
        return self._plan.waiting_bytes

    async def wait(self, timeout_s: float) -> bool:
        """Until there is something to take (records or an error), or `wake` is called.

        Lets others have the loop in any case, so that who always finds records does not keep the
        next ones from being received.

        Returns:
            whether there is something.
        """
        if self._has_something:
            await asyncio.sleep(0)
            return True
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._has_something

    async def breathe(self) -> None:
        """Let others have the loop, and whatever has arrived be received.

        A round of the loop receives what the system has of an answer, and makes room for more of
        it: an answer of a megabyte is here after about ten. Without them it would not come in
        while records are handed out, and who hands them out would wait for it afterwards.
        """
        for _ in range(RECEIVING_ROUNDS_MAX):
            had = self._cluster.received_bytes
            await asyncio.sleep(0)
            if self._cluster.received_bytes == had:
                break

    def wake(self) -> None:
        """Something has changed (a position, a pause, the metadata); whoever waits returns."""
        self._buffers.drop_outdated()
        self._pump()
        self._changed.set()

    def assignment_changed(self) -> None:
        """Forget what was fetched of partitions that are gone, and fetch those that came."""
        assigned = self._positions.assigned
        self._plan.set_partitions(assigned)
        for gone in self._backoffs.keys() - assigned:
            del self._backoffs[gone]
        self.wake()

    async def update_positions(self, committed: CommittedLookup | None) -> None:
        """See that all partitions get a position.

        Waits for `committed` (None: there is no group to ask, reset at once). Resets go on in the
        background, and are fetched as soon as they are found; `wait_positions` waits for them.
        Quick if nothing is missing: may be called in every poll.

        Raises:
            NoOffsetError: there is no committed offset and no policy.
            whatever `committed` raises.
        """
        missing = self._positions.missing_position()
        if not missing:
            return
        fences = {one: self._positions.state(one).fence for one in missing}
        found = await committed(missing) if committed is not None else {}
        default_reset = self._default_reset()
        try:
            for partition, fence in fences.items():
                # One that went and came back may have been committed by others after this answer.
                if self._positions.has_fence(partition, fence):
                    self._positions.committed_found(partition, found.get(partition), default_reset)
        finally:
            self.wake()

    async def wait_positions(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> bool:
        """Until these have a position, or are not assigned any more; False if the time was over.

        Raises:
            AuthorizationError, OffsetOutOfRangeError: as `take` does.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self._positions.are_known(partitions):
                    self._changed.clear()
                    await self._changed.wait()
                    self._raise_errors()
        except TimeoutError:
            return False
        return True

    @property
    def _has_something(self) -> bool:
        return bool(self._due_errors or self._failure or self._buffers.has_readable)

    @property
    def _due_errors(self) -> list[TopicPartition]:
        """Of partitions that are asked for."""
        return [one for one in self._errors if not self._positions.is_aside(one)]

    def _raise_errors(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for partition in self._due_errors:
            fence, error = self._errors.pop(partition)
            if self._positions.has_fence(partition, fence):
                raise error

    def _has_less(self, partition: TopicPartition, byte_count: int) -> None:
        if self._plan.set_waiting(partition, byte_count) and not self._plan.is_saturated:
            self._pump()

    def _fail(self, partition: TopicPartition, error: ConsumerError) -> None:
        """To be raised, if nobody seeks before; the partition is asked for again after a while."""
        self._errors[partition] = (self._positions.state(partition).fence, error)
        self._postpone(partition)
        self._changed.set()

    def _failed(self, failure: BaseException) -> None:
        """Whoever polls next is told."""
        self._failure = failure
        self._changed.set()

    # Requests.

    def _pump(self) -> None:
        """Send what is to be sent now."""
        if not self._is_running:
            return
        self._notice_new_topics()
        self._resets.begin()
        if self._checks.begin():
            self._buffers.drop_outdated()
        now_ms = _now_ms()
        plan = self._plan.next(now_ms, self._leader_of, self._is_readable)
        wakes = [] if plan.wake_ms is None else [plan.wake_ms]
        if plan.leaderless:
            wakes += [self._postpone(partition) for partition in plan.leaderless]
            self._on_metadata_wanted()
        for fetch in plan.fetches:
            self._plan.sent(fetch.node_id, now_ms)
            self._begin(fetch)
        self._stop_timer()
        if wakes:
            wait_s = max(1, min(wakes) - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._pump)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.leader(partition)
        if leader is None or self._cluster.broker(leader.node_id) is None:
            return None
        return leader.node_id

    def _is_readable(self, partition: TopicPartition) -> bool:
        state = self._positions.find(partition)
        return state is not None and state.is_readable

    def _postpone(self, partition: TopicPartition) -> int:
        """Let it be until a time, which grows from failure to failure."""
        backoff = self._backoffs.get(partition)
        if backoff is None:
            config = self._config
            backoff = self._backoffs[partition] = Backoff(
                config.retry_backoff_ms, config.retry_backoff_max_ms, random.random
            )
        until_ms = _now_ms() + backoff.fail()
        self._plan.postpone(partition, self._leader_of(partition), until_ms)
        return until_ms

    def _begin(self, fetch: PlannedFetch) -> None:
        """Have it sent, and its answer taken.

        Where there is a connection it is sent at once: a task would begin when the loop has time,
        and who handles records may keep it until those that are here have run out.
        """
        address = self._cluster.broker(fetch.node_id)
        connection = None if address is None else self._cluster.connected(address)
        promise: _Promise | None = None
        if connection is not None:
            # It will be met again, by the task.
            with suppress(ConsumerError):
                promise = self._send(fetch, connection)
        name = f"fetch from broker {fetch.node_id}"
        task = asyncio.get_running_loop().create_task(self._fetch(fetch, promise), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._fetch_ended)

    def _send(self, fetch: PlannedFetch, connection: Connection) -> _Promise | None:
        """None: there is nothing to ask any more."""
        sent = self._what_to_ask(fetch, connection.versions.best(FetchRequest))
        if not sent.asked:
            return None
        config = self._config
        request = fetch_request(
            sent,
            partition_bytes=config.max_partition_fetch_bytes,
            bytes_max=fetch.bytes_max,
            min_bytes=config.fetch_min_bytes if fetch.may_wait else 0,
            max_wait_ms=config.fetch_max_wait_ms if fetch.may_wait else 0,
            isolation_level=config.isolation_level,
        )
        return _Promise(connection, sent, connection.send(request, version=sent.version))

    async def _fetch(self, fetch: PlannedFetch, promise: _Promise | None) -> None:
        node_id = fetch.node_id
        try:
            if promise is None:
                address = self._cluster.broker(node_id)
                if address is None:
                    raise DisconnectedError("newer metadata does not have this broker any more")
                promise = self._send(fetch, await self._cluster.connection(address))
            if promise is not None:
                connection, sent, future = promise
                timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
                answer = await connection.answer(future, FetchRequest, timeout_ms)
                self._take_answer(node_id, sent, answer)
        except DisconnectedError as error:
            logger.debug("fetching from broker %d: %s", node_id, error)
            self._ask_later(fetch.partitions)
            self._on_metadata_wanted()
        except Exception:
            self._ask_later(fetch.partitions)
            raise
        finally:
            self._plan.answered(node_id)
        # Here, not when the task has ended: that is told a round of the loop later.
        self._pump()

    def _fetch_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            # Nothing that was to be expected.
            self._failed(failure)
            self._pump()

    def _ask_later(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if self._positions.find(partition) is not None:
                self._postpone(partition)

    def _what_to_ask(self, fetch: PlannedFetch, best_version: int) -> SentFetch:
        """The plan may be older than a connection took to be made."""
        asked: dict[TopicPartition, Asked] = {}
        for partition in fetch.partitions:
            leader = self._cluster.leader(partition)
            state = self._positions.find(partition)
            if leader is None or leader.node_id != fetch.node_id or state is None:
                continue
            if state.position is not None and state.is_readable:
                offset = self._fetch_offset(partition, state)
                asked[partition] = Asked(offset, leader.epoch, state.fence)
        topics = {partition.topic for partition in asked}
        topic_ids = {topic: self._cluster.topics[topic].topic_id for topic in topics}
        return SentFetch(version_for(best_version, topic_ids), asked, topic_ids)

    def _fetch_offset(self, partition: TopicPartition, state: PartitionState) -> int:
        offset = self._buffers.next_offset(partition)
        if offset is None:
            offset = state.position
        assert offset is not None
        return offset

    # Answers.

    def _take_answer(self, node_id: int, sent: SentFetch, answer: FetchResponse) -> None:
        if answer.throttle_time_ms > 0:
            self._plan.throttle(node_id, _now_ms() + answer.throttle_time_ms)
        unanswered = set(sent.asked)
        is_stale = False
        for partition, asked, data in answers_in(sent, answer):
            unanswered.discard(partition)
            state = self._positions.find(partition)
            if state is None or state.fence != asked.fence:
                continue
            code = ErrorCode(data.error_code)
            if self._fetch_offset(partition, state) != asked.offset:
                # It was asked twice, because its leader moved.
                continue
            if code is ErrorCode.NONE:
                self._store(partition, asked, data)
            else:
                is_stale |= code in STALE
                self._refused(partition, asked, code)
        self._ask_later(unanswered)
        if is_stale:
            self._on_metadata_wanted()

    def _store(self, partition: TopicPartition, asked: Asked, data: PartitionData) -> None:
        self._backoffs.pop(partition, None)
        self._positions.learned(
            partition,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
        )
        if not data.records:
            return
        aborted = [
            Aborted(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()
        ]
        try:
            chunk = Fetched(partition, memoryview(data.records), self._options, aborted)
        except RecordError as error:
            self._fail_in_turn(partition, error)
            return
        if chunk.next_offset <= asked.offset:
            # Nothing that was asked for, and the next answer would be the same.
            self._postpone(partition)
            return
        self._plan.set_waiting(partition, self._buffers.add(partition, asked.fence, chunk))
        self._plan.served(partition)
        if self._is_readable(partition):
            self._changed.set()

    def _refused(self, partition: TopicPartition, asked: Asked, code: ErrorCode) -> None:
        topic = f"{partition.topic}-{partition.partition}"
        logger.debug("fetching %s from offset %d: %s", topic, asked.offset, code.name)
        if code in STALE or code in PASSING:
            self._postpone(partition)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, asked.offset)
        else:
            self._fail_in_turn(partition, error_for(code, f"fetching {topic}"))

    def _fail_in_turn(self, partition: TopicPartition, error: ConsumerError) -> None:
        """What comes before the error is to be returned before it; by then it will come again."""
        if self._buffers.next_offset(partition) is None:
            self._fail(partition, error)
        else:
            self._postpone(partition)

    def _out_of_range(self, partition: TopicPartition, offset: int) -> None:
        spec = self._default_reset()
        name = f"{partition.topic}-{partition.partition}"
        if self._buffers.next_offset(partition) is not None or spec is None:
            error = OffsetOutOfRangeError(
                f"{name}: offset {offset} is not in the log any more, or not yet, and"
                " auto_offset_reset is none: seek to another offset",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            self._fail_in_turn(partition, error)
            return
        logger.warning("%s: offset %d is not in the log; auto_offset_reset decides", name, offset)
        self._positions.seek_to(partition, spec)

    # Positions.

    def _default_reset(self) -> OffsetSpec | None:
        return self._config.auto_offset_reset.spec_at(time.time_ns() // 1_000_000)

    def _notice_new_topics(self) -> None:
        for topic in self._topic_ids.changed(self._cluster, self._positions.assigned):
            logger.warning("%s was deleted and created again; auto_offset_reset decides", topic)
            errors = begin_anew(self._positions, topic, self._default_reset())
            self._buffers.drop_outdated()
            for partition, error in errors.items():
                self._fail(partition, error)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
