"""Fetch (key 1): return batches from given offsets, at once or when there are enough bytes.

v4-18 as in Kafka 4.4. With isolation level 1 (KIP-98) batches up to the last stable offset are
returned, with exactly those aborted transactions that have records in the response; the consumer
filters these out.

Every response has session id 0, which makes clients send full requests: incremental sessions
(KIP-227) save bytes in clusters with thousands of partitions, but would need state per client.
Follower fields (replica state, diverging epochs, snapshots) are read and ignored, since there are
no followers; for the same reason there is no choice in rack-aware reads.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final, cast

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import Mirror, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.leaders import check_leader_epoch
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.fetch import DelayedFetch, FetchPass, PartitionRead
from kohort.broker.topics.topic import Topic
from kohort.groups.steps import Steps
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
_TOPIC: Final = ResourceType.TOPIC
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
FULL_FETCH_EPOCHS: Final = frozenset({-1, 0})
"""Session epochs of requests without a session (-1) and of those that open one (0): they name all
their partitions, so they can be answered whatever session existed before."""


def _without_data(response: FetchResponse | None) -> FetchResponse:
    """The response to a client that is throttled; as in Kafka, whichever quota it is."""
    del response
    return FetchResponse(responses=[])


@handles(
    FetchRequest,
    versions="4-18",
    on_error=OnError(
        Mirror(
            response="responses",
            request="topics",
            copied=same("topic", "topic_id"),
            inner=Mirror(
                response="partitions",
                request="partitions",
                copied={"partition_index": "partition"},
                values={"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1},
            ),
        )
    ),
    throttled=_without_data,
)
def fetch(
    ctx: RequestContext, request: FetchRequest
) -> FetchResponse | Later[FetchResponse] | Steps[Later[FetchResponse]]:
    """Answer at once if there is enough data, an error, or no maximum wait; otherwise park the
    request.
    """
    ctx.connection.active_as = ctx.header.client_id
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        # This broker never creates a session, so this one is from another broker at the same
        # address.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    quotas = ctx.broker.quotas
    if quotas is not None and quotas.is_limiting:
        # What is kept is looked at here: for nearly every request nothing more is called.
        connection = ctx.connection
        if (
            connection.accounts_of is not connection.session
            or not connection.accounts.allow_at_once(
                ctx.header.client_id, request.max_bytes, request.min_bytes
            )
        ):
            _limit_to_quota(request, quotas.at_once(connection, ctx.header.client_id))
    denied = () if ctx.broker.access is None else _denied(ctx, request)
    if ctx.is_long:
        return _begin_in_steps(ctx, request, denied)
    reads = [
        (topic, [_plan(ctx, request, topic, asked) for asked in topic.partitions])
        if not denied or (topic.topic, topic.topic_id) not in denied
        else (topic, [_refused(asked) for asked in topic.partitions])
        for topic in request.topics
        if topic.partitions
    ]
    allowed = [read for _, of_topic in reads for read in of_topic]
    if denied:
        allowed = _without_denied(allowed)
    first = FetchPass(allowed, min(request.max_bytes, ctx.broker.config.fetch_max_bytes))
    if not first.read_at_hand():
        rest = _finish(_Reading(ctx, request, reads, allowed), first)
        return ctx.run(rest, name="fetch")
    if _is_enough(request, allowed, first.total_bytes):
        return _response(reads)
    return _Reading(ctx, request, reads, allowed).park(first.total_bytes)


def _without_denied(reads: list[PartitionRead]) -> list[PartitionRead]:
    """Return the reads that are not denied. Other errors end the wait of a fetch; a denied
    partition must not.
    """
    return [read for read in reads if read.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def _begin_in_steps(
    ctx: RequestContext, request: FetchRequest, denied: Collection[tuple[str, bytes]]
) -> Steps[Later[FetchResponse]]:
    """Plan the reads of a request with very many partitions in steps, then read in a task."""
    reads: list[tuple[FetchTopic, list[PartitionRead]]] = []
    for topic in request.topics:
        of_topic: list[PartitionRead] = []
        is_denied = (topic.topic, topic.topic_id) in denied
        for asked in topic.partitions:
            of_topic.append(_refused(asked) if is_denied else _plan(ctx, request, topic, asked))
            yield
        if of_topic:
            reads.append((topic, of_topic))
    allowed = _without_denied([read for _, of_topic in reads for read in of_topic])
    first = FetchPass(allowed, min(request.max_bytes, ctx.broker.config.fetch_max_bytes))
    return ctx.run(_finish(_Reading(ctx, request, reads, allowed), first), name="fetch")


def _is_enough(request: FetchRequest, allowed: list[PartitionRead], found_bytes: int) -> bool:
    """Whether to answer without waiting."""
    return (
        found_bytes >= request.min_bytes
        or request.max_wait_ms <= 0
        or not allowed
        or any(read.error for read in allowed)
    )


async def _finish(reading: _Reading, first: FetchPass) -> FetchResponse:
    """Read from disk what is not in memory, then answer, or park and wait for the answer."""
    await first.finish(reading.threads, reading.clock)
    if _is_enough(reading.request, reading.allowed, first.total_bytes):
        return await reading.respond()
    return await reading.park(first.total_bytes)


class _Reading:
    """A request that cannot be answered at once, and its data: `reads` are all partitions by topic,
    in the order of the response, `allowed` those that the client may read.
    """

    def __init__(
        self,
        ctx: RequestContext,
        request: FetchRequest,
        reads: list[tuple[FetchTopic, list[PartitionRead]]],
        allowed: list[PartitionRead],
    ) -> None:
        self.request = request
        self.reads = reads
        self.allowed = allowed
        self.threads = ctx.broker.reads_aside
        self.clock = ctx.broker.clock
        self._ctx = ctx
        self._asker = _asker(ctx)

    def park(self, found_bytes: int) -> Later[FetchResponse]:
        """Wait for more data, after everything has been read once."""
        broker = self._ctx.broker
        # The data will be read again. It must not be kept, because parked data counts in no budget.
        for read in self.allowed:
            read.data = b""
        answer: Later[FetchResponse] = Later()
        operation = DelayedFetch(
            self.allowed,
            bytes_missing=self.request.min_bytes - found_bytes,
            read_again=self._read_again,
            answer=answer,
            owner=self._ctx.connection,
        )
        deadline_ms = broker.clock.monotonic_ms() + self.request.max_wait_ms
        broker.purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
        return answer

    def _read_again(self, answer: Later[FetchResponse]) -> None:
        """Answer with the data available when the wait is over."""
        if answer.is_done:
            return
        if _asker(self._ctx) != self._asker:
            self._refuse_what_is_denied()
        max_bytes = min(self.request.max_bytes, self._ctx.broker.config.fetch_max_bytes)
        again = FetchPass(self.allowed, max_bytes)
        if not self._ctx.is_long and again.read_at_hand():
            answer.give(_response(self.reads))
            return
        rest = self._ctx.run(self._finish_again(again), name="fetch")
        rest.on_done(partial(self._answer_with, answer))
        # A client that disconnects cancels the answer, and with it the task.
        answer.on_done(lambda _: rest.cancel())

    async def _finish_again(self, again: FetchPass) -> FetchResponse:
        await again.finish(self.threads, self.clock)
        return await self.respond()

    async def respond(self) -> FetchResponse:
        """Build the response in slices."""
        response, piece = FetchResponse(responses=[]), Slice(self.clock)
        for topic, of_topic in self.reads:
            result = FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=[]
            )
            response.responses.append(result)
            for read in of_topic:
                result.partitions.append(_partition(read))
                await piece.pause()
        return response

    def _refuse_what_is_denied(self) -> None:
        """Read nothing that rules do not allow any more: a request may wait for weeks."""
        denied = _denied(self._ctx, self.request)
        for topic, of_topic in self.reads:
            if (topic.topic, topic.topic_id) in denied:
                for read in of_topic:
                    read.partition, read.error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.allowed = _without_denied(self.allowed)

    def _answer_with(self, answer: Later[FetchResponse], rest: Later[FetchResponse]) -> None:
        if rest.is_cancelled:
            answer.cancel()
        elif rest.error is not None:
            answer.fail(rest.error)
        else:
            answer.give(rest.result())


def _asker(ctx: RequestContext) -> tuple[object, ...] | None:
    """What the decisions about a client depend on; None without an authorizer."""
    access = ctx.broker.access
    return None if access is None else access.asker(ctx.session)


def _limit_to_quota(request: FetchRequest, at_once: int) -> None:
    """Limit `max_bytes` to what the client's quota allows at once; and `min_bytes`, or the request
    would wait for data that it cannot get.
    """
    request.max_bytes = min(request.max_bytes, at_once)
    request.min_bytes = min(request.min_bytes, at_once)


def _denied(ctx: RequestContext, request: FetchRequest) -> set[tuple[str, bytes]]:
    """Return the topics that the principal may not read, as (name, id) of the request. An unknown
    id is not included: it is answered UNKNOWN_TOPIC_ID.
    """
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        if ctx.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return set()
        return {(topic.topic, topic.topic_id) for topic in request.topics}
    asked_for = request.topics
    names: list[str] = []
    if ctx.header.api_version >= TOPIC_IDS_SINCE:
        found = [(ctx.broker.topics.get_by_id(asked.topic_id), asked) for asked in asked_for]
        asked_for = [asked for topic, asked in found if topic is not None]
        names = [topic.name for topic, _ in found if topic is not None]
    else:
        names = [asked.topic for asked in asked_for]
    denied = ctx.denied(_READ, _TOPIC, names)
    if not denied:
        return set()
    return {
        (asked.topic, asked.topic_id)
        for asked, name in zip(asked_for, names, strict=True)
        if name in denied
    }


def _refused(asked: FetchPartition) -> PartitionRead:
    read = PartitionRead(asked.partition, None, asked.fetch_offset, 0)
    read.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return read


def _plan(
    ctx: RequestContext, request: FetchRequest, asked_topic: FetchTopic, asked: FetchPartition
) -> PartitionRead:
    """Find a requested partition; the result has the partition, or the error to answer."""
    topic = _find_topic(ctx, asked_topic)
    read = PartitionRead(
        asked.partition, None, asked.fetch_offset, max(asked.partition_max_bytes, 0)
    )
    if topic is None:
        by_id = ctx.api_version >= TOPIC_IDS_SINCE
        read.error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not 0 <= asked.partition < len(topic.partitions):
        read.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        partition = topic.partitions[asked.partition]
        # Here Kafka treats every negative epoch as none; elsewhere only -1.
        clients_epoch = max(asked.current_leader_epoch, NO_EPOCH)
        read.error = check_leader_epoch(clients_epoch, partition.leader_epoch)
        isolation_level = request.isolation_level
        if not read.error and isolation_level not in {READ_UNCOMMITTED, READ_COMMITTED}:
            read.error = ErrorCode.INVALID_REQUEST
        if not read.error:
            read.partition = partition
            read.as_range = ctx.connection.sends_files
            read.committed_only = isolation_level == READ_COMMITTED
    return read


def _find_topic(ctx: RequestContext, asked: FetchTopic) -> Topic | None:
    if ctx.api_version >= TOPIC_IDS_SINCE:
        return ctx.broker.topics.get_by_id(asked.topic_id)
    return ctx.broker.topics.get(asked.topic)


def _response(reads: list[tuple[FetchTopic, list[PartitionRead]]]) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_partition(read) for read in of_topic],
            )
            for topic, of_topic in reads
        ]
    )


def _partition(read: PartitionRead) -> PartitionData:
    high_watermark = last_stable_offset = log_start_offset = -1
    if read.partition is not None and not read.error:
        high_watermark = read.partition.high_watermark
        log_start_offset = read.partition.log.log_start_offset
        try:
            last_stable_offset = read.partition.last_stable_offset
        except KafkaError:
            # The transactions of the partition cannot be read; read_uncommitted works without them.
            last_stable_offset = -1
    return PartitionData(
        partition_index=read.partition_index,
        error_code=read.error,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=read.aborted,
        # The codec treats a range like any large buffer: it only uses its length.
        records=cast("memoryview", read.data),
    )
