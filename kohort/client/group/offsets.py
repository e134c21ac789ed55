"""Committed positions: stored at and fetched from the group's coordinator.

Commits are sent one at a time, in the order of the calls, so that an older one never overwrites a
newer one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    BrokerUnreachableError,
    CommitError,
    ConsumerError,
    IllegalStateError,
    OperationTimedOutError,
    RebalanceInProgressError,
    StaleEpochError,
    UnknownTopicError,
    error_for,
)
from kohort.client.core.group.offset_requests import (
    NAMED_UNTIL,
    commit_request,
    committed_in,
    errors_in,
    fetch_request,
)
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.callbacks import CommitCallback, CommitCallbacks, Offsets
from kohort.client.group.commit_identity import CommitIdentity, Committer
from kohort.client.group.coordinator import Coordinator
from kohort.client.net.cluster import Cluster
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_commit import OffsetCommitRequest
from kohort.protocol.messages.offset_fetch import OffsetFetchRequest
from kohort.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NO_ORDER: Final = nullcontext()

Committed: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]

ASYNC_COMMITS_MAX: Final = 1_000
"""Limit on commits that wait to be sent, or whose callbacks wait to be called. It is reached only
if the application commits faster than the coordinator answers, or never polls."""

_COORDINATOR_GONE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_STALE_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
_RETRIED: Final = (
    _COORDINATOR_GONE
    | _STALE_TOPIC
    | {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_COMMIT_RETRIED: Final = _RETRIED | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_FETCH_RETRIED: Final = _RETRIED | {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
"""Errors after which an OffsetFetch is retried. After the last two, the next heartbeat gives the
member its new epoch, or reports that it was removed."""
_LOST_MEMBERSHIP: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_IDENTITY_ERRORS: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS})


class OffsetsObserver(Protocol):
    """Receives commit events for other parts of the consumer."""

    def coordinator_lost(self) -> None:
        """The coordinator has moved, or the connection to it was lost."""

    def metadata_stale(self) -> None:
        """The broker does not know a topic id that is in the cached metadata."""

    def committed(self, seconds: float) -> None:
        """A commit succeeded; its response came after `seconds`."""

    def commit_failed(self, error: ConsumerError) -> None:
        """An attempt to commit failed."""

    def callback_due(self) -> None:
        """A callback of `commit_async` is ready to be called."""


class GroupOffsets:
    """Commits and fetches the positions of one consumer's group."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        *,
        group_instance_id: str | None,
        backoff_ms: tuple[int, int],
        observer: OffsetsObserver,
    ) -> None:
        self.committer = Committer()
        self._cluster = cluster
        self._coordinator = coordinator
        self._instance_id = group_instance_id
        self._backoff_ms = backoff_ms
        self._observer = observer
        self._last_queued: asyncio.Future[None] | None = None
        """Completes when the most recently requested commit is over."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.callbacks = CommitCallbacks()

    # Commits.

    async def commit(
        self, offsets: Offsets, timeout_s: float, *, is_automatic: bool = False
    ) -> None:
        """Commit positions, after all commits that were requested earlier; retry retriable errors.

        Every attempt uses the consumer's identity at the time of the call; see `CommitIdentity`.

        Args:
            is_automatic: do not wait for topics that have been deleted.

        Raises:
            CommitFailedError, RebalanceInProgressError: see these classes; also raised if the
                consumer's member id or generation changes before an attempt succeeds.
            OperationTimedOutError: no success in time.
            AuthorizationError, CommitError: the coordinator refuses the commit.
        """
        if offsets:
            operation = f"commit in group {self._coordinator.group_id}"
            sender = self._commit_identity()
            await self._retrying(
                lambda: self._commit_once(sender, offsets, is_automatic=is_automatic),
                operation,
                timeout_s,
                self._in_order(),
            )

    def commit_async(
        self,
        offsets: Offsets,
        callback: CommitCallback | None,
        *,
        on_done: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Store positions with a single attempt: a retry could overtake another commit.

        `callback` is the application's and is called by `callbacks.run_due`; `on_done` is called as
        soon as the commit is over.

        Raises:
            IllegalStateError: `ASYNC_COMMITS_MAX` commits are waiting.
        """
        is_ours = on_done is not None
        if len(self._tasks) + len(self.callbacks) >= ASYNC_COMMITS_MAX and not is_ours:
            raise IllegalStateError(
                f"{ASYNC_COMMITS_MAX} commits are waiting to be sent, or for a poll to call their"
                " callbacks; commit less often, or await some"
            )
        # Queued now, not when the task starts, so that a later awaited commit comes after it.
        previous, own = self._enqueue()
        sender: CommitIdentity | CommitError
        try:
            sender = self._commit_identity()
        except CommitError as error:
            sender = error
        task = asyncio.create_task(self._once_in_order(sender, offsets, previous), name="commit")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            _dequeue(own, previous)
            if task.cancelled():
                return
            error = task.exception()
            if on_done is not None:
                on_done(error)
            elif callback is not None:
                assert error is None or isinstance(error, Exception)
                self.callbacks.add(callback, offsets, error)
                self._observer.callback_due()
            elif error is not None:
                logger.warning("a commit failed: %s", error)

        task.add_done_callback(done)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _once_in_order(
        self,
        sender: CommitIdentity | CommitError,
        offsets: Offsets,
        previous: asyncio.Future[None] | None,
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        if isinstance(sender, CommitError):
            raise sender  # Only now, so that callbacks keep the order of their commits.
        await self._commit_once(sender, offsets)

    @asynccontextmanager
    async def _in_order(self) -> AsyncIterator[None]:
        """Wait for all commits that were requested before this one."""
        previous, own = self._enqueue()
        try:
            if previous is not None:
                await asyncio.wait([previous])
            yield
        finally:
            _dequeue(own, previous)

    def _enqueue(self) -> tuple[asyncio.Future[None] | None, asyncio.Future[None]]:
        previous = self._last_queued
        own = self._last_queued = asyncio.get_running_loop().create_future()
        return previous, own

    def _commit_identity(self) -> CommitIdentity:
        identity = self.committer.commit_identity()
        return CommitIdentity(self.committer, identity, self._cluster.topic_ids())

    async def _commit_once(
        self, sender: CommitIdentity, offsets: Offsets, *, is_automatic: bool = False
    ) -> None:
        try:
            seconds = await self._send_commit(sender, offsets, is_automatic=is_automatic)
        except RebalanceInProgressError:
            raise  # No failure: the caller was cancelled.
        except ConsumerError as error:
            self._observer.commit_failed(error)
            raise
        self._observer.committed(seconds)

    async def _send_commit(
        self, sender: CommitIdentity, offsets: Offsets, *, is_automatic: bool
    ) -> float:
        committer = sender.committer
        connection = await self._connection()
        # Check the identity only now, because it may have changed while connecting.
        identity = committer.check_still(sender.identity)
        ids = sender.topic_ids
        gone = self._gone(ids, offsets, is_automatic=is_automatic)
        present = {tp: offset for tp, offset in offsets.items() if tp.topic not in gone}
        if gone and not present:
            raise _deleted_error(gone)
        version = connection.versions.best(OffsetCommitRequest)
        if any(partition.topic not in ids for partition in present):
            version = min(version, NAMED_UNTIL)
        instance_id = self._instance_id if identity.is_valid else None
        request = commit_request(self._coordinator.group_id, identity, instance_id, present, ids)
        began_s = asyncio.get_running_loop().time()
        answer = await self._call(connection, request, version)
        seconds = asyncio.get_running_loop().time() - began_s
        sent = sender._replace(identity=identity)
        self._raise_errors(errors_in(answer, ids), sent, is_automatic=is_automatic)
        if gone:
            raise _deleted_error(gone)
        return seconds

    def _gone(
        self, topic_ids: Mapping[str, bytes], offsets: Offsets, *, is_automatic: bool
    ) -> set[str]:
        """Return the committed topics that were recreated; for automatic commits, which do not
        wait for a topic, also those that were deleted.
        """
        gone = set()
        for topic in {partition.topic for partition in offsets} & topic_ids.keys():
            info = self._cluster.topics.get(topic)
            if info is None or info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                is_gone = is_automatic
            else:
                # Brokers before Kafka 2.8 send no ids.
                is_gone = info.topic_id not in {ZERO_UUID, topic_ids[topic]}
            if is_gone:
                gone.add(topic)
        return gone

    def _raise_errors(
        self,
        errors: Mapping[TopicPartition, ErrorCode],
        sender: CommitIdentity,
        *,
        is_automatic: bool,
    ) -> None:
        """Raise the most important error of a response, if there is one."""
        codes = set(errors.values())
        for code in codes & _LOST_MEMBERSHIP | codes & _IDENTITY_ERRORS:
            if error := sender.committer.commit_refused(sender.identity, code):
                raise error
        refused = codes - (_RETRIED if is_automatic else _COMMIT_RETRIED)
        if refused:
            code = min(refused)
            partitions = sorted(tp for tp, value in errors.items() if value is code)
            raise _commit_error(code, partitions)
        self._raise_retried(codes)

    # Fetching committed positions.

    async def fetch(self, partitions: Collection[TopicPartition], timeout_s: float) -> Committed:
        """Fetch the committed offset of each partition; None if there is none.

        Raises:
            OperationTimedOutError: no success in time.
            AuthorizationError, UnknownTopicError: the coordinator refuses the request.
        """
        return await self._retrying(lambda: self._fetch_once(partitions), self._fetching, timeout_s)

    async def fetch_without_timeout(self, partitions: Collection[TopicPartition]) -> Committed:
        """Fetch as `fetch` does, retrying without a time limit."""
        return await self._retrying(lambda: self._fetch_once(partitions), self._fetching, None)

    @property
    def _fetching(self) -> str:
        return f"fetching the committed offsets of group {self._coordinator.group_id}"

    async def _fetch_once(self, partitions: Collection[TopicPartition]) -> Committed:
        if not partitions:
            return {}
        connection = await self._connection()
        ids = self._cluster.topic_ids()
        version = connection.versions.best(OffsetFetchRequest)
        if any(partition.topic not in ids for partition in partitions):
            version = min(version, NAMED_UNTIL)
        identity = self.committer.fetch_identity()
        request = fetch_request(self._coordinator.group_id, identity, partitions, ids, version)
        answer = await self._call(connection, request, version)
        group_error, committed, errors = committed_in(answer, ids)
        codes = {group_error, *errors.values()} - {ErrorCode.NONE}
        refused = codes - _FETCH_RETRIED
        if refused:
            code = min(refused)
            raise _fetch_error(
                code, self._coordinator.group_id, [tp for tp in errors if errors[tp] is code]
            )
        self._raise_retried(codes)
        return {partition: committed.get(partition) for partition in partitions}

    # Attempts.

    async def _connection(self) -> BrokerConnection:
        """Connect to the coordinator, avoiding the connection that a join may be blocking."""
        coordinator = self._coordinator
        if coordinator.address is None:
            code = await coordinator.find()
            if code in _RETRIED:
                raise _RetriableError(code)
            if code:
                raise error_for(code, f"finding the coordinator of {coordinator.group_id}")
        try:
            return await coordinator.connection("offsets" if self.committer.is_joining else "group")
        except DisconnectedError:
            self._observer.coordinator_lost()
            raise

    async def _call(self, connection: BrokerConnection, request: object, version: int) -> Any:  # noqa: ANN401
        try:
            return await connection.call(request, version=version)
        except DisconnectedError:
            self._observer.coordinator_lost()
            raise

    def _raise_retried(self, codes: Collection[ErrorCode]) -> None:
        codes = [code for code in codes if code]
        if not codes:
            return
        if any(code in _COORDINATOR_GONE for code in codes):
            self._observer.coordinator_lost()
        if any(code in _STALE_TOPIC for code in codes):
            self._observer.metadata_stale()
        raise _RetriableError(codes[0])

    async def _retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        operation: str,
        timeout_s: float | None,
        order: AbstractAsyncContextManager[object] = _NO_ORDER,
    ) -> T:
        """Retry until success, an error that is not retriable, or the timeout."""
        backoff = Backoff(*self._backoff_ms, random.random)
        last: ConsumerError | None = None
        try:
            async with asyncio.timeout(timeout_s), order:
                while True:
                    try:
                        return await attempt()
                    except _ATTEMPTED_AGAIN as error:
                        logger.debug("%s: %s", operation, error)
                        last = error
                    await asyncio.sleep(backoff.fail() / 1000)
        except TimeoutError:
            why = f"; the last attempt: {last}" if last else ""
            code = last.code if last else ErrorCode.REQUEST_TIMED_OUT
            text = f"{operation}: no success within {timeout_s:g} s{why}"
            raise OperationTimedOutError(text, code) from last


def _dequeue(own: asyncio.Future[None], previous: asyncio.Future[None] | None) -> None:
    if previous is None or previous.done():
        own.set_result(None)
    else:
        # This commit was cancelled while earlier ones are pending, for which later ones must still
        # wait.
        previous.add_done_callback(lambda _: own.set_result(None))


class _RetriableError(CommitError):
    """A failed attempt that is worth repeating."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"{code.name}: try again", code)


_ATTEMPTED_AGAIN: Final = (
    DisconnectedError,
    BrokerUnreachableError,
    StaleEpochError,
    _RetriableError,
)


def _commit_error(code: ErrorCode, partitions: Collection[TopicPartition]) -> ConsumerError:
    topics = ", ".join(sorted({partition.topic for partition in partitions}))
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return RebalanceInProgressError("the group is rebalancing; poll, then commit again", code)
    return error_for(code, f"committing positions in {topics}")


def _deleted_error(topics: Collection[str]) -> ConsumerError:
    return UnknownTopicError(
        f"{', '.join(sorted(topics))}: deleted since the records were read; their offsets are not"
        " committed, as they would apply to a new topic of that name",
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


def _fetch_error(
    code: ErrorCode, group_id: str, partitions: Collection[TopicPartition]
) -> ConsumerError:
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions))
    return error_for(
        code, f"fetching the committed offsets of group {group_id} for {names or 'topics'}"
    )
