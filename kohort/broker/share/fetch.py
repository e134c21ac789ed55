"""Acquires records for one ShareFetch, at once or when some become available.

A fetch that finds no records waits in the purgatory under the keys of its log partitions, which
complete it when records are appended, and of its share-partitions, which complete it when records
are released or the window has room again. It acquires records only when it is answered, so that
an abandoned fetch locks none.

Cached data is read on the event loop, other data in another thread. The window may change during
such a read, so the result is compared with the window's position afterwards.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.share.log_read import (
    LogRead,
    Wanted,
    read_cached,
    read_in_thread,
    readable_bytes,
)
from kohort.broker.share.partition import SharePartition
from kohort.broker.share.partitions import SharePartitions
from kohort.broker.share.settings import GroupSettings
from kohort.broker.topics.partition import Partition
from kohort.groups.share.sessions import ShareSession
from kohort.groups.share.window import AcknowledgementError, AcquiredRange, AcquireMode, Window
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError

UNSLICED_PARTITIONS_MAX: Final = 100
"""A fetch of more partitions than this acquires records in slices."""

_HELD_BYTES: Final = 400
"""Estimated memory per partition of a waiting fetch."""

ATTEMPTS: Final = 3
"""Maximum reads of one partition in another thread, if its window changes during each."""

RETRIES: Final = 3
"""If a fetch has read in other threads this often and acquired nothing, it waits for a change."""

NOT_INITIALIZED: Final = "The share group has not initialized this partition."


class FetchTerms(NamedTuple):
    """The limits in a ShareFetch request; no value is negative."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    response_bytes: int
    """With this many bytes of records, the response is full. It may have more than `max_bytes`,
    because each partition returns at least one batch, of any size."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """A partition of the session: whether it can be read, and its part of the response."""

    topic_id: bytes
    number: int
    was_acquirable: bool = False
    """Whether the partition had acquirable records; False if they were left to the next fetch."""
    was_acknowledged: bool = False
    share: SharePartition | None = None
    log: Partition | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    acknowledgement: AcknowledgementError | None = None
    """The error of the partition's acknowledgements, if they failed."""
    data: bytes | memoryview = b""
    acquired: Sequence[AcquiredRange] = ()

    def fail(self, error: ErrorCode, message: str | None = None) -> None:
        self.error, self.message = error, message


_Uncached: TypeAlias = tuple[FetchedPartition, int]
"""A partition whose data is not cached, and how many bytes of it to read."""


class ShareReader(NamedTuple):
    """The services of the broker that a fetch uses."""

    partitions: SharePartitions
    purgatory: Purgatory
    clock: Clock


class ShareFetch:
    """One ShareFetch of an open session, created after its acknowledgements were applied."""

    def __init__(
        self,
        reader: ShareReader,
        session: ShareSession,
        epoch: int,
        terms: FetchTerms,
        fetched: Sequence[FetchedPartition],
        *,
        owner: Hashable,
        threads: asyncio.Semaphore,
        run: Callable[[Coroutine[Any, Any, None], str], Deferred[None]],
        check_again: Callable[[], None],
    ) -> None:
        """Create a fetch; `begin` executes it.

        Args:
            epoch: the session's epoch after this request.
            fetched: all partitions of the session.
            threads: limits the number of requests that read in other threads.
            run: runs a coroutine in a task that is cancelled if the client disconnects.
            check_again: sets the error of partitions that the client may no longer read.
        """
        self._reader = reader
        self._session = session
        self._epoch = epoch
        self._terms = terms
        self._fetched = fetched
        self._owner = owner
        self._threads = threads
        self._run = run
        self._check_again = check_again
        self._deadline_ms = 0
        self._parked: DelayedShareFetch | None = None
        self._has_advanced = False
        """Whether the fetch acquired records, or moved a window past records that it did not
        acquire, such as aborted ones."""
        self._retries_left = RETRIES
        self._response_bytes = 0
        self.answer: Deferred[ErrorCode] = Deferred()
        """The error of the whole request; the results are in the `FetchedPartition`s."""

    def begin(self) -> None:
        """Answer at once if there are records or the request must not wait; else wait."""
        terms = self._terms
        self._deadline_ms = self._reader.clock.monotonic_ms() + terms.max_wait_ms
        if (
            self._is_superseded
            or not terms.max_records
            or not terms.max_bytes
            or not self._readable()
        ):
            self._finish()
        elif self.is_ready() or not terms.max_wait_ms:
            self._acquire(may_wait=terms.max_wait_ms > 0)
        else:
            self._park(after_check=True)

    def supersede(self) -> None:
        """Answer a waiting fetch, because its session was used again or has ended."""
        parked, self._parked = self._parked, None
        if parked is not None and not parked.is_completed:
            self._reader.purgatory.cancel_operation(parked)
            self._finish()

    # Waiting.

    def is_ready(self, key: Hashable | None = None) -> bool:
        """Whether to answer now: there are enough bytes to acquire, or a partition has failed.

        `key` is the partition or share-partition that has changed.
        """
        missing = max(self._terms.min_bytes, 1)
        settings = self._reader.partitions.settings(self._session.group_id)
        for fetched in self._fetched:
            share, log = fetched.share, fetched.log
            if share is None or log is None or (key is not None and key not in (share, log)):
                continue
            if share.is_gone or log.failure is not None:
                return True
            window = self._reader.partitions.window(share, log, settings)
            if window is None or not window.can_acquire:
                continue
            missing -= readable_bytes(
                log, window.position, missing, committed_only=settings.committed_only
            )
            if missing <= 0:
                return True
        # The changed partition alone has too few bytes; all partitions together may have enough.
        return key is not None and self._terms.min_bytes > 1 and self.is_ready()

    def _readable(self) -> list[FetchedPartition]:
        """Return the partitions without an error."""
        return [fetched for fetched in self._fetched if fetched.share is not None]

    def _park(self, *, after_check: bool) -> None:
        readable = self._readable()
        keys: list[Hashable] = []
        for fetched in readable:
            keys += (fetched.share, fetched.log)
        operation = DelayedShareFetch(
            self, owner=self._owner, held_bytes=_HELD_BYTES * len(readable), after_check=after_check
        )
        self._parked = operation
        self._reader.purgatory.try_complete_else_watch(operation, keys, self._deadline_ms)

    def on_complete(self, completion: Completion) -> None:
        """Acquire the available records; called by the delayed operation."""
        self._parked = None  # Which refers to this fetch: no cycle may be left.
        if self.answer.is_done:
            return
        self._check_again()
        self._acquire(may_wait=completion is Completion.SATISFIED)

    # Acquiring.

    def _acquire(self, *, may_wait: bool) -> None:
        """Acquire up to the requested number of records and answer; with `may_wait`, wait if there
        are none.
        """
        readable = self._readable()
        steps = self._acquire_steps(readable)
        if len(readable) > UNSLICED_PARTITIONS_MAX:
            self._run_in_task(self._acquire_in_slices(steps, may_wait=may_wait))
            return
        uncached, left = at_once(steps)
        if uncached and left > 0:
            self._run_in_task(self._acquire_in_threads(uncached, left, may_wait=may_wait))
        else:
            self._finish_or_wait(may_wait=may_wait)

    def _run_in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task, which is cancelled if the client disconnects."""
        task = self._run(work, "share fetch")
        task.add_done_callback(self._on_task_done)
        self.answer.add_done_callback(lambda _: task.cancel())

    async def _acquire_in_slices(
        self, steps: Steps[tuple[list[_Uncached], int]], *, may_wait: bool
    ) -> None:
        uncached, left = await run(steps, Slice(self._reader.clock))
        if uncached and left > 0:
            await self._acquire_in_threads(uncached, left, may_wait=may_wait)
        else:
            self._finish_or_wait(may_wait=may_wait)

    def _acquire_steps(
        self, readable: list[FetchedPartition]
    ) -> Steps[tuple[list[_Uncached], int]]:
        """Acquire records from cached data. Return the partitions whose data is not cached, each
        with the bytes to read, and the number of records that are still wanted.

        If loaded share-partitions have records, those that are not loaded are left to the next
        fetch. Kafka, too, answers when the first share-partition is loaded; librdkafka's tests rely
        on it.
        """
        settings = self._reader.partitions.settings(self._session.group_id)
        loaded: list[FetchedPartition] = []
        unloaded: list[FetchedPartition] = []
        for fetched in readable:
            assert fetched.share is not None
            acquirable = unloaded if fetched.share.window is None else loaded
            if self._check_acquirable(fetched, settings):
                acquirable.append(fetched)
            yield
        left = self._terms.max_records
        uncached: list[_Uncached] = []
        for acquirable in (loaded, unloaded):
            each, rest = divmod(self._terms.max_bytes, max(len(acquirable), 1))
            for index, fetched in enumerate(acquirable):
                if left <= 0 or self._is_full or self._is_superseded:
                    break
                max_bytes = each if index else each + rest
                count = self._acquire_cached(fetched, max_bytes, left, settings)
                if count is None:
                    uncached.append((fetched, max_bytes))
                else:
                    left -= count
                yield
            if acquirable is unloaded:
                break
            if uncached or any(fetched.acquired for fetched in loaded):
                for fetched in unloaded:
                    fetched.was_acquirable = False
                break
            left = self._terms.max_records  # The loaded partitions had only aborted records.
        return uncached, left

    def _check_acquirable(self, fetched: FetchedPartition, settings: GroupSettings) -> bool:
        """Return whether a partition has acquirable records; set its `was_acquirable`, or its error
        if the log has failed or the state was deleted.
        """
        share, log = fetched.share, fetched.log
        assert share is not None
        assert log is not None
        if log.failure is None and not share.is_gone:
            window = self._reader.partitions.window(share, log, settings)
            fetched.was_acquirable = window is not None and window.can_acquire
            return fetched.was_acquirable
        if log.failure is not None:
            fetched.fail(log.failure.code)
        else:
            fetched.fail(ErrorCode.UNKNOWN_SERVER_ERROR, NOT_INITIALIZED)
        fetched.share = fetched.log = None
        return False

    def _acquire_cached(
        self,
        fetched: FetchedPartition,
        max_bytes: int,
        max_records: int,
        settings: GroupSettings,
    ) -> int | None:
        """Acquire records from cached data; return their number, None if the data is not cached."""
        share, log = fetched.share, fetched.log
        assert share is not None
        assert log is not None
        window = share.window
        if share.is_gone or window is None:
            return 0
        if not readable_bytes(log, window.position, 1, committed_only=settings.committed_only):
            return 0
        try:
            read = read_cached(log, _wanted(share, window, max_bytes, max_records, settings))
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                fetched.fail(error.code)
            return 0
        return None if read is None else self._acquire_from(fetched, window, read, max_records)

    async def _acquire_in_threads(
        self, uncached: list[_Uncached], left: int, *, may_wait: bool
    ) -> None:
        for fetched, max_bytes in uncached:
            if left > 0 and not self._is_full and not self._is_superseded:
                left -= await self._acquire_in_thread(fetched, max_bytes, left)
        # Unless its retries are used up, the fetch checks before it waits whether records have
        # become available since the reads.
        self._retries_left -= 1
        self._finish_or_wait(may_wait=may_wait, after_check=self._retries_left <= 0)

    async def _acquire_in_thread(
        self, fetched: FetchedPartition, max_bytes: int, max_records: int
    ) -> int:
        """Acquire records as `_acquire_cached` does, after a read in another thread."""
        share, log, reader = fetched.share, fetched.log, self._reader
        assert share is not None
        assert log is not None
        for _ in range(ATTEMPTS):
            settings = reader.partitions.settings(share.key.group_id)
            window = reader.partitions.window(share, log, settings)
            if window is None or not window.can_acquire:
                return 0
            wanted = _wanted(share, window, max_bytes, max_records, settings)
            try:
                async with self._threads:
                    read = await read_in_thread(log, wanted, reader.clock)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    fetched.fail(error.code)
                return 0
            if self._is_superseded or share.is_gone:
                return 0
            # Other members may have acquired or released records meanwhile, or the window was
            # replaced.
            if reader.partitions.window(share) is not window:
                continue
            if not read.batches:
                return 0
            if wanted.offset <= window.position < read.next_offset:
                return self._acquire_from(fetched, window, read.since(window.position), max_records)
        return 0

    def _acquire_from(
        self, fetched: FetchedPartition, window: Window, read: LogRead, max_records: int
    ) -> int:
        """Acquire records from the result of a read; return their number."""
        share = fetched.share
        assert share is not None
        if not read.batches:
            return 0
        share.note_read(read)
        position = window.position
        acquisition = window.acquire(
            self._session.member_id,
            self._reader.clock.monotonic_ms(),
            read.batches,
            max_records=max_records,
            batch_size=max(self._terms.batch_size, 1),
            mode=self._terms.mode,
        )
        ranges = acquisition.ranges
        self._has_advanced |= acquisition.record_count > 0 or window.position > position
        if ranges:
            share.reset_policy = None
            share.note_acquired(ranges)
            fetched.acquired = ranges
            fetched.data = read.part(ranges[0].first_offset, ranges[-1].last_offset)
            self._response_bytes += len(fetched.data)
        self._reader.partitions.set_timer(share)
        return acquisition.record_count

    # Answering.

    @property
    def _is_full(self) -> bool:
        return self._response_bytes >= self._terms.response_bytes

    @property
    def _is_superseded(self) -> bool:
        """Whether the client no longer expects this answer; if so, no record may be acquired."""
        session = self._session
        return self.answer.is_done or session.is_closed or session.epoch != self._epoch

    def _finish_or_wait(self, *, may_wait: bool, after_check: bool = True) -> None:
        """Answer; or, with `may_wait`, wait if no records were acquired, for example because other
        members were faster.
        """
        has_result = any(fetched.acquired or fetched.error for fetched in self._fetched)
        if (
            may_wait
            and not has_result
            and not self._has_advanced
            and not self._is_superseded
            and self._reader.clock.monotonic_ms() < self._deadline_ms
        ):
            self._park(after_check=after_check)
        else:
            self._finish()

    def _finish(self) -> None:
        if self.answer.is_done:
            return
        session = self._session
        is_stale = not session.is_closed and session.epoch != self._epoch
        self.answer.set_result(ErrorCode.INVALID_SHARE_SESSION_EPOCH if is_stale else NO_ERROR)

    def _on_task_done(self, task: Deferred[None]) -> None:
        if task.error is not None and not self.answer.is_done:
            self.answer.set_exception(task.error)


def _wanted(
    share: SharePartition,
    window: Window,
    max_bytes: int,
    max_records: int,
    settings: GroupSettings,
) -> Wanted:
    offset = window.position
    return Wanted(
        offset,
        offset + max_records,
        max_bytes,
        share.chunk_bytes(max_records),
        settings.committed_only,
    )


class DelayedShareFetch(DelayedOperation):
    """A ShareFetch that waits for records."""

    __slots__ = ("_fetch", "_is_checked")

    kind: ClassVar[str] = "ShareFetch"

    def __init__(
        self, fetch: ShareFetch, *, owner: Hashable, held_bytes: int, after_check: bool
    ) -> None:
        """`after_check`: no records were found just now, so the first `try_complete` is False."""
        super().__init__(owner=owner, held_bytes=held_bytes)
        self._fetch = fetch
        self._is_checked = after_check

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self._is_checked:
            self._is_checked = False
            return False
        return self._fetch.is_ready(key)

    def on_complete(self, completion: Completion) -> None:
        self._fetch.on_complete(completion)

    def on_failed(self, error: Exception) -> None:
        if not self._fetch.answer.is_done:
            self._fetch.answer.set_exception(error)

    def on_cancelled(self) -> None:
        """Do nothing: the client has disconnected, or `ShareFetch.supersede` answers the fetch."""
