"""The fetch state of one consumer: what has been fetched, what to fetch next, and how responses
change both. No I/O.

The fetcher has the sockets, the tasks and the clock:

- it sends what `next_fetches` plans, as requests made by `build_request` once there is a
  connection;
- it passes the response to `on_response`, or a failure to `on_broker_unreachable` or
  `on_fetch_error`, and calls `on_request_finished` in any case;
- it calls `next_fetches` again at `next_deadline_ms`;
- after any call it carries out `effects`, logs `notes`, and empties both.

Readers call `take` for records; `failures` has the errors to raise to them.

Times are milliseconds: `now_ms` of a monotonic clock, `wall_ms` since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from kohort.client.core.backoff import Backoffs
from kohort.client.core.errors import (
    ConsumerError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordError,
    error_for,
)
from kohort.client.core.fetch.batches import Aborted, Fetched, ReadOptions
from kohort.client.core.fetch.buffers import FetchBuffers, PartitionFilter, Records
from kohort.client.core.fetch.config import FetchConfig
from kohort.client.core.fetch.deserialisers import (
    NO_DESERIALISERS,
    BackgroundDeserialiser,
    Deserialisers,
)
from kohort.client.core.fetch.failures import FetchFailures
from kohort.client.core.fetch.plan import FetchLimits, FetchPlan, PlannedFetch
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.sources import FetchSources, KnownCluster
from kohort.client.core.fetch.truncation import TopicIds, reset_recreated
from kohort.client.core.fetch.wire import (
    PASSING,
    STALE,
    RequestedPartition,
    SentFetch,
    answers_in,
    fetch_request,
    version_for,
)
from kohort.client.core.offsets import OffsetAndMetadata, OffsetSpec
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from kohort.client.core.topics import Leader
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import FetchResponse, PartitionData


class Effect(Enum):
    WAKE_READERS = "wake readers"
    """Records or an error have arrived for waiting readers."""
    REFRESH = "refresh"
    """The metadata is outdated; call `next_fetches` when there is new metadata."""
    FETCH = "fetch"
    """The buffers have room for more records: call `next_fetches`."""


class Note(NamedTuple):
    text: str
    is_warning: bool = False


class FetchState:
    """The fetch state of one consumer. Code that changes `positions` must call `drop_outdated`
    afterwards, or `set_assigned` if partitions were added or removed.
    """

    def __init__(
        self,
        positions: Positions,
        cluster: KnownCluster,
        config: FetchConfig,
        *,
        random: Callable[[], float],
        deserialisers: Deserialisers = NO_DESERIALISERS,
        background: BackgroundDeserialiser | None = None,
    ) -> None:
        """`random` returns numbers from 0 to below 1. `background` runs deserialisers that are
        coroutine functions; None if there are none.
        """
        self._positions = positions
        self._cluster = cluster
        self._config = config
        self.effects: Final[set[Effect]] = set()
        self.notes: Final[list[Note]] = []
        self.next_deadline_ms: int | None = None
        """When to call `next_fetches` again if no event occurs before."""
        self.failures = FetchFailures(positions)
        self._plan = FetchPlan(
            FetchLimits(
                config.fetch_max_bytes,
                config.max_partition_fetch_bytes,
                config.prefetch_bytes_limit,
            )
        )
        self._sources = FetchSources(
            cluster, rack=config.client_rack, lifetime_ms=config.metadata_max_age_ms
        )
        self._buffers = FetchBuffers(
            positions,
            inflated_bytes_limit=config.prefetch_bytes_limit,
            on_less=self._on_taken,
            on_failed=self._on_unreadable,
            background=background,
        )
        self._options = ReadOptions(
            config.check_crcs, config.inflated_bytes_limit, deserialisers, background
        )
        self._topic_ids = TopicIds()
        self._backoffs: Backoffs[TopicPartition] = Backoffs(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random
        )
        self._unreadable: set[TopicPartition] = set()
        """Partitions whose next record could not be returned. `next_fetches` postpones them,
        because the read methods have no `now_ms`."""
        self.next_made: Final = self._buffers.next_made
        """Fast path of `next_record`: returns the next record if it is already deserialised, else
        None. Called for each record, so the buffers' method is used directly."""

    # Called by readers.

    def take(self, max_records: int, only: PartitionFilter = None) -> Records:
        """Return records, from as many partitions as needed; positions move past them."""
        return self._buffers.take(max_records, only)

    def next_record(self) -> AnyRecord | None:
        """Return the next fetched record, or None; the position moves past the record."""
        return self._buffers.next_record()

    def take_error(self, only: PartitionFilter, now_ms: int) -> BaseException | None:
        """Return the next error to raise to a reader of the partitions in `only` (None: all)."""
        return self.failures.take(only, now_ms)

    def has_something(self, only: PartitionFilter = None) -> bool:
        """Whether there are records or an error for a reader of `only` (None: all)."""
        return self.failures.are_due(only) or self._buffers.has_readable(only)

    def mark_processed(self, only: PartitionFilter) -> None:
        """A reader of these partitions (None: all) polls again: mark the records of its last poll
        as processed.
        """
        self._buffers.mark_processed(only)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets up to which records are processed: the positions before the records
        that each reader got last, because these records may still be in progress.
        """
        return self._buffers.processed()

    @property
    def waiting_bytes(self) -> int:
        return self._plan.waiting_bytes

    def unanswered(self, now_ms: int) -> dict[TopicPartition, float]:
        """Return for how many seconds fetches of each partition have gone unanswered."""
        return self.failures.unanswered(now_ms, self._plan.has_waiting)

    # Changes from outside.

    def set_assigned(self) -> None:
        """Forget the data of revoked partitions, and fetch newly assigned ones from now on."""
        assigned = self._positions.assigned
        self._plan.set_partitions(assigned)
        self._backoffs.keep_only(assigned)
        self.failures.keep_only(assigned)
        self._sources.keep_only(assigned)
        self.drop_outdated()

    def drop_outdated(self) -> None:
        """Forget data that was fetched for positions that have changed."""
        self._buffers.drop_outdated()

    def notice_new_topics(self, now_ms: int, wall_ms: int) -> None:
        """After new metadata, reset the positions in topics that were deleted and recreated."""
        for topic in self._topic_ids.changed(self._cluster.topics, self._positions.assigned):
            self._warn(f"{topic} was deleted and recreated; applying auto_offset_reset")
            errors = reset_recreated(self._positions, topic, self.default_reset(wall_ms))
            self.drop_outdated()
            for partition, error in errors.items():
                self.report(partition, error, now_ms)

    def default_reset(self, wall_ms: int) -> OffsetSpec | None:
        """Where to start in a partition without a position; None: raise an error to the user."""
        return self._config.reset_policy.spec_at(wall_ms)

    def clear(self) -> None:
        """Forget all fetched data and all errors not yet raised."""
        self._buffers.clear()
        self.failures.clear()

    # Requests.

    def next_fetches(self, now_ms: int) -> Sequence[PlannedFetch]:
        """Return the requests to send, one per broker. For each, `on_request_finished` must be
        called.
        """
        self.effects.discard(Effect.FETCH)
        for partition in self._unreadable:
            if self._positions.find(partition) is not None:
                self._postpone(partition, now_ms)
        self._unreadable.clear()
        plan = self._plan.next(
            now_ms, lambda partition: self._sources.node(partition, now_ms), self._is_readable
        )
        wakes = [] if plan.wake_ms is None else [plan.wake_ms]
        if plan.leaderless:
            wakes += self._retry_unserved(plan.leaderless, now_ms, now_ms)
            self.effects.add(Effect.REFRESH)
        for fetch in plan.fetches:
            self._plan.sent(fetch.node_id, now_ms)
        self.next_deadline_ms = min(wakes, default=None)
        return plan.fetches

    def build_request(
        self, fetch: PlannedFetch, best_version: int, now_ms: int
    ) -> SentFetch | None:
        """Build the request, in this version or a lower one if necessary.

        The plan may be older than the connection: partitions that have moved or are no longer to be
        read are left out. None if no partition is left.
        """
        requested: dict[TopicPartition, RequestedPartition] = {}
        for partition in fetch.partitions:
            leader = self._cluster.leader(partition)
            state = self._positions.find(partition)
            node_id = self._sources.node(partition, now_ms)
            if leader is None or state is None or node_id != fetch.node_id:
                continue
            if state.position is not None and state.is_readable:
                offset = self._buffers.fetch_offset(partition, state)
                is_leader = leader.node_id == fetch.node_id
                requested[partition] = RequestedPartition(
                    offset, leader.epoch, state.fence, is_leader
                )
        if not requested:
            return None
        topics = {partition.topic for partition in requested}
        topic_ids = {topic: self._cluster.topics[topic].topic_id for topic in topics}
        config = self._config
        request = fetch_request(
            requested,
            topic_ids,
            partition_bytes=config.max_partition_fetch_bytes,
            bytes_max=fetch.bytes_max,
            min_bytes=config.fetch_min_bytes if fetch.may_wait else 0,
            max_wait_ms=config.fetch_max_wait_ms if fetch.may_wait else 0,
            isolation_level=config.isolation,
            rack=self._sources.rack_to_tell(requested, now_ms),
        )
        version = version_for(best_version, topic_ids)
        return SentFetch(fetch.node_id, version, requested, topic_ids, request)

    # Responses.

    def on_response(
        self, sent: SentFetch, answer: FetchResponse, now_ms: int, wall_ms: int
    ) -> None:
        """Store records of partitions whose position is unchanged, and handle errors."""
        node_id = sent.node_id
        if answer.throttle_time_ms > 0:
            self._plan.throttle(node_id, now_ms + answer.throttle_time_ms)
        unanswered = set(sent.requested)
        for partition, requested, data in answers_in(sent, answer):
            unanswered.discard(partition)
            state = self._positions.find(partition)
            if state is None or state.fence != requested.fence:
                continue
            if self._buffers.fetch_offset(partition, state) != requested.offset:
                # A duplicate: the leader changed, and the old and the new leader responded.
                continue
            code = ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE
            if code is ErrorCode.NONE:
                is_redirected = self._follow_redirect(partition, node_id, requested, data, now_ms)
                if data.records or not is_redirected:
                    self._store(partition, requested, data, now_ms, wall_ms)
                continue
            if code in STALE:
                self.effects.add(Effect.REFRESH)
            if not requested.is_leader:
                # Return to the leader after any error of a follower: OFFSET_OUT_OF_RANGE, too, may
                # only mean that the follower lags behind.
                self._note(f"{_name(partition)}: broker {node_id}: {code.name}")
                self._postpone(partition, now_ms)
                self._sources.failed(partition, node_id, now_ms)
            else:
                self._refused(partition, requested, code, now_ms, wall_ms)
        self._retry_unserved(unanswered, now_ms, now_ms)

    def on_broker_unreachable(self, fetch: PlannedFetch, since_ms: int, now_ms: int) -> None:
        """Handle a broker that could not be reached for a request due at `since_ms`."""
        self._retry_unserved(fetch.partitions, since_ms, now_ms)
        for partition in fetch.partitions:
            self._sources.failed(partition, fetch.node_id, now_ms)
        self.effects.add(Effect.REFRESH)

    def on_fetch_error(
        self, fetch: PlannedFetch, failure: BaseException, since_ms: int, now_ms: int
    ) -> None:
        """Handle any error except an unreachable broker; the next reader raises `failure`."""
        self._retry_unserved(fetch.partitions, since_ms, now_ms)
        self.report_failure(failure)

    def on_request_finished(self, fetch: PlannedFetch) -> None:
        """Record that the broker is free for the next request, whatever the result of this
        request.
        """
        self._plan.answered(fetch.node_id)
        self.effects.add(Effect.FETCH)

    def report(self, partition: TopicPartition, error: ConsumerError, now_ms: int) -> None:
        """Make the next read raise `error` unless the position changes first; delay the fetch."""
        if self.failures.add(partition, error):
            self._postpone(partition, now_ms)
            self.effects.add(Effect.WAKE_READERS)

    def report_failure(self, failure: BaseException) -> None:
        """Make the next read of any partition raise this error."""
        self.failures.add_failure(failure)
        self.effects.add(Effect.WAKE_READERS)

    # The response for one partition.

    def _follow_redirect(
        self,
        partition: TopicPartition,
        node_id: int,
        requested: RequestedPartition,
        data: PartitionData,
        now_ms: int,
    ) -> bool:
        """Fetch from the preferred read replica that the response names, if any. Returns whether it
        names one; such a response usually has no records.
        """
        leader = Leader(node_id, requested.leader_epoch)
        follower = data.preferred_read_replica
        if not requested.is_leader:
            return False
        if not self._sources.leader_named(partition, follower, leader, now_ms):
            return False
        self._note(f"{_name(partition)}: reading from broker {follower}, a follower")
        if self._sources.is_doubtful(partition, now_ms):
            # Without a pause, requests would alternate between the leader and the follower.
            self._postpone(partition, now_ms)
            self.effects.add(Effect.REFRESH)
        return True

    def _store(
        self,
        partition: TopicPartition,
        requested: RequestedPartition,
        data: PartitionData,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._backoffs.succeed(partition)
        self.failures.answered(partition, now_ms)
        self._positions.learned(
            partition,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            wall_ms=wall_ms,
        )
        if not data.records:
            return
        aborted = [
            Aborted(txn.first_offset, txn.producer_id) for txn in data.aborted_transactions or ()
        ]
        try:
            chunk = Fetched(
                partition, memoryview(data.records), self._options, aborted, offset=requested.offset
            )
        except RecordError as error:
            self._report_behind_records(partition, error, now_ms)
            return
        if chunk.next_offset <= requested.offset:
            # No record is at or after the requested offset; an immediate retry would return the
            # same.
            self._postpone(partition, now_ms)
            return
        self._plan.set_waiting(partition, self._buffers.add(partition, requested.fence, chunk))
        self._plan.served(partition)
        if self._is_readable(partition):
            self.effects.add(Effect.WAKE_READERS)

    def _refused(
        self,
        partition: TopicPartition,
        requested: RequestedPartition,
        code: ErrorCode,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        name = _name(partition)
        self._note(f"fetching {name} from offset {requested.offset}: {code.name}")
        if code in STALE or code in PASSING:
            self._retry_unserved([partition], now_ms, now_ms)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, requested.offset, now_ms, wall_ms)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            error = CorruptRecordError(
                f"fetching {name} from offset {requested.offset}: CORRUPT_MESSAGE: the broker"
                " found its log damaged there; seek past it to continue",
                partition,
                requested.offset,
                code=code,
            )
            self._report_behind_records(partition, error, now_ms)
        else:
            self._report_behind_records(partition, error_for(code, f"fetching {name}"), now_ms)

    def _out_of_range(
        self, partition: TopicPartition, offset: int, now_ms: int, wall_ms: int
    ) -> None:
        spec = self.default_reset(wall_ms)
        name = _name(partition)
        if self._buffers.next_offset(partition) is not None:
            # Return the buffered records first; the fetch after them fails again.
            self._postpone(partition, now_ms)
        elif spec is None:
            error = OffsetOutOfRangeError(
                f"{name}: offset {offset} is outside the log, and"
                " auto_offset_reset is none: seek to another offset",
                partition,
                offset,
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            self.report(partition, error, now_ms)
        else:
            self._warn(f"{name}: offset {offset} is not in the log; applying auto_offset_reset")
            self._positions.seek_to(partition, spec)

    def _report_behind_records(
        self, partition: TopicPartition, error: ConsumerError, now_ms: int
    ) -> None:
        """Report the error if no fetched records of the partition are left. Otherwise postpone the
        next fetch: the error will recur after these records.
        """
        if self._buffers.next_offset(partition) is None:
            self.report(partition, error, now_ms)
        else:
            self._postpone(partition, now_ms)

    # Retries.

    def note_unanswered(self, partitions: Collection[TopicPartition], since_ms: int) -> None:
        """Record that a request about these partitions, sent at `since_ms`, was not answered."""
        self.failures.note_unanswered(partitions, since_ms)

    def _retry_unserved(
        self, partitions: Iterable[TopicPartition], since_ms: int, now_ms: int
    ) -> list[int]:
        """Postpone partitions that were not served: their leader is unknown, unreachable, or has
        returned a temporary error. Returns the end of each backoff; revoked partitions are ignored.
        """
        left = self.failures.note_unanswered(partitions, since_ms)
        return [self._postpone(partition, now_ms) for partition in left]

    def _postpone(self, partition: TopicPartition, now_ms: int) -> int:
        """Postpone a partition with a growing backoff; return the end of the backoff."""
        until_ms = now_ms + self._backoffs.fail(partition)
        self._plan.postpone(partition, self._sources.node(partition, now_ms), until_ms)
        return until_ms

    # Callbacks of the buffers.

    def _on_taken(self, partition: TopicPartition, byte_count: int) -> None:
        if self._plan.set_waiting(partition, byte_count) and not self._plan.is_saturated:
            self.effects.add(Effect.FETCH)

    def _on_unreadable(self, partition: TopicPartition, error: RecordError) -> None:
        if self.failures.add(partition, error):
            self._unreadable.add(partition)
            self.effects.update((Effect.WAKE_READERS, Effect.FETCH))

    def _is_readable(self, partition: TopicPartition) -> bool:
        state = self._positions.find(partition)
        return state is not None and state.is_readable

    def _note(self, text: str) -> None:
        self.notes.append(Note(text))

    def _warn(self, text: str) -> None:
        self.notes.append(Note(text, is_warning=True))


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
