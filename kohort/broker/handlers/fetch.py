"""Fetch (key 1): return batches from given offsets, at once or when there are enough bytes.

v4-18 as in Kafka 4.4. With isolation level 1 (KIP-98) batches up to the last stable offset are
returned, with exactly those aborted transactions that have records in the response; the consumer
filters these out.

Incremental sessions (KIP-227) are not supported: every response has session id 0, so clients send
full requests. Sessions save bytes in clusters with thousands of partitions, but need state per
client.
Follower fields (replica state, diverging epochs, snapshots) are decoded and ignored, since there
are no followers; rack-aware reads would have no other replica to choose, for the same reason.
"""

from contextlib import suppress
from typing import Final, cast

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import check_leader_epoch, may_use
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.topic import Topic
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

TOPIC_IDS_SINCE: Final = 13
_READ: Final = Operation.READ
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
FULL_FETCH_EPOCHS: Final = frozenset({-1, 0})
"""Session epochs of requests without a session (-1), and of requests that open a session (0). Such
requests name all their partitions, so they can be answered without the state of a session."""


@handles(
    FetchRequest,
    versions="4-18",
    on_error=OnError(
        elements(
            "responses.partitions",
            "topics.partitions",
            same("topic", "topic_id"),
            {"partition_index": "partition"},
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
        )
    ),
    # A throttled request is answered without records, whichever quota was exceeded.
    throttled=lambda _: FetchResponse(responses=[]),
)
def fetch(
    ctx: RequestContext, request: FetchRequest
) -> FetchResponse | Deferred[FetchResponse] | Steps[Deferred[FetchResponse]]:
    """Answer if there is enough data, an error or no time to wait; otherwise park the request."""
    ctx.connection.active_as = ctx.header.client_id
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        # This broker never creates a session, so the client got it from another broker at the same
        # address.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    quotas = ctx.broker.quotas
    if quotas is not None and quotas.is_limiting:
        # Nearly every request is within the limits cached in its connection, and needs no lookup.
        connection = ctx.connection
        if (
            connection.accounts_of is not connection.session
            or not connection.accounts.allow_at_once(
                ctx.header.client_id, request.max_bytes, request.min_bytes
            )
        ):
            at_once_bytes = quotas.at_once(connection, ctx.header.client_id)
            request.max_bytes = min(request.max_bytes, at_once_bytes)
            # Otherwise the request would wait for more bytes than its quota allows in one response.
            request.min_bytes = min(request.min_bytes, at_once_bytes)
    call = FetchCall(ctx, request)
    if ctx.is_long:
        return call.plan_then_read()
    at_once(call.plan())
    return call.try_now()


class FetchCall:
    """One Fetch request and its reads: answered at once by `try_now`, or parked by `park`."""

    __slots__ = ("_allowed", "_ctx", "_max_bytes", "_permissions_key", "_reads", "_request")

    def __init__(self, ctx: RequestContext, request: FetchRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self._reads: list[tuple[FetchTopic, list[PartitionRead]]] = []
        """All partitions by topic, in the order of the response."""
        self._allowed: list[PartitionRead] = []
        """Partitions that the principal may read. Unlike other errors, a denied partition does not
        end the request's wait."""
        self._permissions_key = ctx.permissions_key

    def plan(self) -> Steps[None]:
        """Find the requested partitions, or the errors to return for them; one step for each
        partition.
        """
        topics = self._ctx.broker.topics
        by_id = self._ctx.header.api_version >= TOPIC_IDS_SINCE
        may_read_all = self._may_read_all()
        for requested in self._request.topics:
            if not requested.partitions:
                continue
            topic = topics.get_by_id(requested.topic_id) if by_id else topics.get(requested.topic)
            is_allowed = may_read_all
            if is_allowed is None:
                is_allowed = may_use(self._ctx, _READ, topic, requested.topic, by_id=by_id)
            of_topic: list[PartitionRead] = []
            for partition in requested.partitions:
                if is_allowed:
                    read = self._planned(topic, partition)
                    self._allowed.append(read)
                else:
                    read = PartitionRead(partition.partition, None, partition.fetch_offset, 0)
                    read.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                of_topic.append(read)
                yield
            self._reads.append((requested, of_topic))

    def _may_read_all(self) -> bool | None:
        """Whether the sender may fetch as a follower, from all topics; None if it is a consumer,
        whose topics are authorized one by one.
        """
        request = self._request
        if request.replica_id < 0 and request.replica_state.replica_id < 0:
            return None
        return self._ctx.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def _planned(self, topic: Topic | None, requested: FetchPartition) -> PartitionRead:
        ctx = self._ctx
        index = requested.partition
        read = PartitionRead(
            index, None, requested.fetch_offset, max(requested.partition_max_bytes, 0)
        )
        if topic is None:
            by_id = ctx.header.api_version >= TOPIC_IDS_SINCE
            read.error = (
                ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        elif not 0 <= index < len(topic.partitions):
            read.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            partition = topic.partitions[index]
            # In Fetch, Kafka takes every negative epoch as "no epoch"; in other APIs only -1.
            clients_epoch = max(requested.current_leader_epoch, NO_EPOCH)
            read.error = check_leader_epoch(clients_epoch, partition.leader_epoch)
            isolation_level = self._request.isolation_level
            if not read.error and isolation_level not in {READ_UNCOMMITTED, READ_COMMITTED}:
                read.error = ErrorCode.INVALID_REQUEST
            if not read.error:
                read.partition = partition
                read.as_range = ctx.connection.sends_files
                read.committed_only = isolation_level == READ_COMMITTED
        return read

    def try_now(self) -> FetchResponse | Deferred[FetchResponse]:
        """Answer with cached data if that is enough; otherwise read the rest in a task, or park."""
        reading = FetchPass(self._allowed, self._max_bytes)
        if not reading.read_cached():
            return self._ctx.run(self._read_all(reading), name="fetch")
        if self._is_enough(reading.total_bytes):
            return at_once(self._respond())
        return self.park(reading.total_bytes)

    def plan_then_read(self) -> Steps[Deferred[FetchResponse]]:
        """Plan the reads of a request with very many partitions in steps, then read in a task."""
        yield from self.plan()
        reading = FetchPass(self._allowed, self._max_bytes)
        return self._ctx.run(self._read_all(reading), name="fetch")

    async def _read_all(self, reading: FetchPass) -> FetchResponse:
        """Read uncached data from disk, then answer, or park and wait for the answer."""
        await reading.finish(self._ctx.broker.offloaded_reads, self._ctx.broker.clock)
        if self._is_enough(reading.total_bytes):
            return await run(self._respond(), Slice(self._ctx.broker.clock))
        return await self.park(reading.total_bytes)

    def _is_enough(self, read_bytes: int) -> bool:
        return (
            read_bytes >= self._request.min_bytes
            or self._request.max_wait_ms <= 0
            or not self._allowed
            or any(read.error for read in self._allowed)
        )

    def park(self, read_bytes: int) -> Deferred[FetchResponse]:
        """Park the request until there is enough data, or its maximum wait is over."""
        broker = self._ctx.broker
        # Drop the data, because no budget covers parked data; `_read_again` reads it once more.
        for read in self._allowed:
            read.data = b""
        answer: Deferred[FetchResponse] = Deferred()
        operation = DelayedFetch(
            self._allowed,
            bytes_missing=self._request.min_bytes - read_bytes,
            read_again=self._read_again,
            answer=answer,
            owner=self._ctx.connection,
        )
        deadline_ms = broker.clock.monotonic_ms() + self._request.max_wait_ms
        broker.purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
        return answer

    def _read_again(self, answer: Deferred[FetchResponse]) -> None:
        """Read again and answer, because the wait for data is over."""
        if answer.is_done:
            return
        if self._ctx.permissions_key != self._permissions_key:
            self._refuse_denied()
        reading = FetchPass(self._allowed, self._max_bytes)
        if not self._ctx.is_long and reading.read_cached():
            answer.set_result(at_once(self._respond()))
            return
        rest = self._ctx.run(self._finish_again(reading), name="fetch")
        rest.add_done_callback(answer.take)
        # A client that disconnects cancels the answer, and with it the task.
        answer.add_done_callback(lambda _: rest.cancel())

    async def _finish_again(self, reading: FetchPass) -> FetchResponse:
        await reading.finish(self._ctx.broker.offloaded_reads, self._ctx.broker.clock)
        return await run(self._respond(), Slice(self._ctx.broker.clock))

    def _refuse_denied(self) -> None:
        """Check the access rules again, because a request may be parked for weeks."""
        topics = self._ctx.broker.topics
        by_id = self._ctx.header.api_version >= TOPIC_IDS_SINCE
        may_read_all = self._may_read_all()
        for requested, of_topic in self._reads:
            topic = topics.get_by_id(requested.topic_id) if by_id else topics.get(requested.topic)
            is_allowed = may_read_all
            if is_allowed is None:
                is_allowed = may_use(self._ctx, _READ, topic, requested.topic, by_id=by_id)
            if not is_allowed:
                for read in of_topic:
                    read.partition, read.error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._allowed = [
            read for read in self._allowed if read.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]

    def _respond(self) -> Steps[FetchResponse]:
        """Return the results of all reads; one step for each partition."""
        response = FetchResponse(responses=[])
        for requested, of_topic in self._reads:
            partitions: list[PartitionData] = []
            response.responses.append(
                FetchableTopicResponse(
                    topic=requested.topic, topic_id=requested.topic_id, partitions=partitions
                )
            )
            for read in of_topic:
                partitions.append(_partition(read))
                yield
        return response


def _partition(read: PartitionRead) -> PartitionData:
    high_watermark = last_stable_offset = log_start_offset = -1
    if read.partition is not None and not read.error:
        high_watermark = read.partition.high_watermark
        log_start_offset = read.partition.log.log_start_offset
        # If this fails because the partition's transactions cannot be read, read_uncommitted
        # consumers still get their records.
        with suppress(KafkaError):
            last_stable_offset = read.partition.last_stable_offset
    return PartitionData(
        partition_index=read.partition_index,
        error_code=read.error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=read.aborted,
        # The codec treats a file range like any large buffer, of which it uses only the length.
        records=cast("memoryview", read.data),
    )
