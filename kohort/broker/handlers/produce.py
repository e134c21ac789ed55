"""Produce (key 0): append one batch to each of the named partitions.

v3-13; versions 0 to 2 are advertised but not supported, as in Kafka 4, because an old feature check
of librdkafka looks for version 0. Partitions fail individually. acks=1 and acks=all differ only if
the configuration forces records to disk: acks=all waits for that in the purgatory.

With acks=0 there is no response; a failure is signalled by closing the connection.

Batches of a transaction are appended after the others, together, once the coordinator has verified
them: :mod:`kohort.broker.handlers.shared.in_transaction`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias

from kohort.broker.core.partition.validation import validation_steps
from kohort.broker.core.partition.verdict import (
    ProduceTerms,
    RejectedBatch,
    ValidBatch,
    Verdict,
)
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, Mirror, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.in_transaction import (
    ADDS_SINCE,
    Candidate,
    append_in_transaction,
)
from kohort.broker.network.service import CloseConnection
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import Slice, let_others_run
from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.produce import DelayedProduce, PendingAppend
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.protocol.records.batch import LOW_ATTRIBUTES_AT, TRANSACTIONAL_BIT

TOPIC_IDS_SINCE: Final = 13
ACKS_NONE: Final = 0
_WRITE_TOPIC: Final = (Operation.WRITE, ResourceType.TOPIC)
ACKS_ALL: Final = -1

APPENDS_MS: Final = 5
"""Budget of a slice: for so long a request checks and appends batches before other connections are
served."""


class _Pause(Enum):
    """The points at which a request asks something of the event loop."""

    END_OF_SLICE = auto()
    """Others run."""
    BEFORE_LARGE_BATCH = auto()
    """Others run, and then the lock for large batches is acquired. Validation may take much memory,
    so only one request at a time proceeds beyond this point."""
    AFTER_LARGE_BATCH = auto()
    """The lock is released, without a pause: what was inflated is no longer held."""


_Serving: TypeAlias = Generator[_Pause | Later[None], None, "_ProduceProgress"]
"""Yields the kind of pause, or what to wait for."""


_Response: TypeAlias = ProduceResponse | None
"""A response, or None where the client waits for none."""


@dataclass(slots=True, eq=False)
class _ProduceProgress:
    """The results of a request so far."""

    response: ProduceResponse
    pending: list[tuple[PendingAppend, PartitionProduceResponse]] = field(default_factory=list)
    """Batches that are not acknowledged yet, and what of the response is about each."""
    in_transaction: list[Candidate] = field(default_factory=list)
    """Batches that are appended together after all have been validated."""


def _is_answered(request: ProduceRequest) -> bool:
    return request.acks != ACKS_NONE


@handles(
    ProduceRequest,
    versions="3-13",
    advertised="0-13",
    on_error=OnError(
        Mirror(
            response="responses",
            request="topic_data",
            copied=BY_NAME_OR_ID,
            inner=Mirror(
                response="partition_responses",
                request="partition_data",
                copied=same("index"),
                values={"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1},
            ),
        )
    ),
    is_answered=_is_answered,
    # Most of the bytes are records, which the handler validates in slices.
    long_bytes=sys.maxsize,
)
def produce(ctx: RequestContext, request: ProduceRequest) -> _Response | Later[_Response]:
    """Append at once; anything that takes long is continued in a task."""
    if ctx.broker.access is not None and _is_transactional(request):
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    serving = _serve_partitions(ctx, request)
    try:
        pause = next(serving)
    except StopIteration as done:
        return _respond(ctx, request, done.value)
    rest = _continue(ctx, request, serving, pause)
    return ctx.run(rest, name="produce")


async def _continue(
    ctx: RequestContext, request: ProduceRequest, serving: _Serving, pause: _Pause | Later[None]
) -> _Response:
    progress = await _finish(serving, pause, ctx.broker.large_batch)
    response = _respond(ctx, request, progress)
    return await response if isinstance(response, Later) else response


async def _finish(
    serving: _Serving, pause: _Pause | Later[None], large_batch: asyncio.Lock
) -> _ProduceProgress:
    """Do at each pause what it asks for; `large_batch` is held only while needed."""
    is_holding = False
    try:
        while True:
            if isinstance(pause, Later):
                with suppress(KafkaError):
                    await pause
            elif pause is _Pause.AFTER_LARGE_BATCH:
                large_batch.release()
                is_holding = False
            else:
                await let_others_run()
                if pause is _Pause.BEFORE_LARGE_BATCH:
                    await large_batch.acquire()
                    is_holding = True
            try:
                pause = next(serving)
            except StopIteration as done:
                progress: _ProduceProgress = done.value
                return progress
    finally:
        if is_holding:
            large_batch.release()


def _serve_partitions(ctx: RequestContext, request: ProduceRequest) -> _Serving:
    """Serve the request batch by batch; yields when its slice is over, and around large batches."""
    progress = _ProduceProgress(ProduceResponse(responses=[]))
    piece = Slice(ctx.broker.clock, APPENDS_MS)
    for topic_data in request.topic_data:
        if not topic_data.partition_data:
            continue
        topic = _find_topic(ctx, topic_data)
        is_denied = False
        if ctx.broker.access is not None and (
            topic is not None or ctx.header.api_version < TOPIC_IDS_SINCE
        ):
            # An unknown id reveals nothing.
            name = topic_data.name if topic is None else topic.name
            # What is kept is looked at here, or `may` would be called for every topic.
            connection = ctx.connection
            is_kept = (
                connection.granted_to is connection.session
                and name in connection.granted.get(_WRITE_TOPIC, ())
            )
            is_denied = not is_kept and not ctx.may(*_WRITE_TOPIC, name)
        topic_response = TopicProduceResponse(
            name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=[]
        )
        progress.response.responses.append(topic_response)
        for data in topic_data.partition_data:
            if piece.is_over():
                yield _Pause.END_OF_SLICE
                piece.begin()
            partition_response = PartitionProduceResponse(
                index=data.index, error_code=NO_ERROR, base_offset=-1
            )
            topic_response.partition_responses.append(partition_response)
            if is_denied:
                partition_response.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            try:
                partition = _find_partition(ctx, topic, data.index)
                yield from _serve_partition(
                    ctx, request, partition, data, partition_response, progress, piece
                )
            except KafkaError as error:
                _fail(partition_response, error)
    if progress.in_transaction:
        yield from _end_with_transactional(ctx, request, progress)
    return progress


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether any of its batches looks transactional. Nothing else of them is looked at."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            # Without a call: where there is an authorizer, every request pays for this.
            if (
                records is not None
                and len(records) > LOW_ATTRIBUTES_AT
                and records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def _serve_partition(
    ctx: RequestContext,
    request: ProduceRequest,
    partition: Partition,
    data: PartitionProduceData,
    partition_response: PartitionProduceResponse,
    progress: _ProduceProgress,
    piece: Slice,
) -> Generator[_Pause, None, None]:
    """Validate one batch, append it unless a transaction has it, and fill in the response."""
    wall_ms = ctx.broker.clock.wall_ms()
    terms = ProduceTerms(
        api_version=ctx.api_version,
        acks=request.acks,
        has_transactional_id=request.transactional_id is not None,
        wall_ms=wall_ms,
    )
    verdict = yield from _validate(ctx, partition, data, terms, piece)
    if isinstance(verdict, RejectedBatch):
        partition_response.error_code, partition_response.error_message = (
            verdict.code,
            verdict.message,
        )
        partition_response.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=error.batch_index, batch_index_error_message=error.message
            )
            for error in verdict.record_errors
        ]
        if verdict.reports_log_start:
            partition_response.log_start_offset = partition.log.log_start_offset
        if verdict.code is ErrorCode.MESSAGE_TOO_LARGE and ctx.broker.log is not None:
            # Responses before v8 cannot say which limit was exceeded.
            text = "Rejected a batch of client %s for %s-%d: %s"
            client, name = ctx.header.client_id, partition.topic_name
            ctx.broker.log.note("batch_too_large", text, client, name, data.index, verdict.message)
        return
    if verdict.header.attributes & TRANSACTIONAL_BIT:
        append = partial(
            _append,
            request,
            partition,
            verdict,
            partition_response,
            progress,
            wall_ms=wall_ms,
            is_first_of_epoch_zero=ctx.api_version >= ADDS_SINCE,
        )
        refuse = partial(_refuse, partition, partition_response)
        progress.in_transaction.append(Candidate(partition, verdict, append, refuse))
        return
    _append(request, partition, verdict, partition_response, progress, wall_ms=wall_ms)


def _append(
    request: ProduceRequest,
    partition: Partition,
    verdict: ValidBatch,
    partition_response: PartitionProduceResponse,
    progress: _ProduceProgress,
    *,
    wall_ms: int,
    is_first_of_epoch_zero: bool = False,
) -> None:
    """Append a batch that has been found valid. Raises KafkaError."""
    partition.check_online()
    partition_response.log_start_offset = partition.log.log_start_offset
    try:
        appended = partition.append(
            verdict.batch,
            verdict.header,
            wall_ms=wall_ms,
            is_first_of_epoch_zero=is_first_of_epoch_zero,
        )
    except StorageError:
        partition_response.log_start_offset = -1
        raise
    partition_response.base_offset = appended.base_offset
    if verdict.log_append_time_ms >= 0:
        partition_response.log_append_time_ms = appended.appended_ms
    pending = PendingAppend(partition, appended.next_offset)
    if request.acks == ACKS_ALL and not pending.is_decided:
        progress.pending.append((pending, partition_response))


def _end_with_transactional(
    ctx: RequestContext, request: ProduceRequest, progress: _ProduceProgress
) -> Generator[Later[None], None, None]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        error = KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is open in this partition")
        for one in progress.in_transaction:
            one.refuse(error)
        return
    yield from append_in_transaction(
        ctx.broker.transactions,
        transactional_id,
        ctx.api_version,
        ctx.client,
        progress.in_transaction,
    )


def _refuse(
    partition: Partition,
    partition_response: PartitionProduceResponse,
    error: KafkaError,
    *,
    by_log: bool = False,
) -> None:
    _fail(partition_response, error)
    if by_log:
        partition_response.log_start_offset = partition.log.log_start_offset


def _fail(partition_response: PartitionProduceResponse, error: KafkaError) -> None:
    partition_response.error_code = error.code
    partition_response.error_message = error.message


def _validate(
    ctx: RequestContext,
    partition: Partition,
    data: PartitionProduceData,
    terms: ProduceTerms,
    piece: Slice,
) -> Generator[_Pause, None, Verdict]:
    """Validate a batch. It is a large one if its checks do not end within the slice."""
    inflated_bytes_limit = ctx.broker.inflated_batch_bytes_max
    large_batch = ctx.broker.large_batch
    steps = validation_steps(data.records, partition.config, terms, inflated_bytes_limit)
    verdict: Verdict
    while True:
        try:
            next(steps)
        except StopIteration as done:
            verdict = done.value
            return verdict
        # While another request holds the lock, a batch goes no further than its first step: there
        # is no second one inflated beside the other's.
        if piece.is_over() or large_batch.locked():
            break
    # Start over when no other request validates a large batch: the data decompressed so far must
    # not be kept for each waiting request. That costs a slice at most.
    steps.close()
    yield _Pause.BEFORE_LARGE_BATCH
    piece.begin()
    steps = validation_steps(data.records, partition.config, terms, inflated_bytes_limit)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            verdict = done.value
            break
        if piece.is_over():
            yield _Pause.END_OF_SLICE
            piece.begin()
    yield _Pause.AFTER_LARGE_BATCH
    return verdict


def _respond(
    ctx: RequestContext, request: ProduceRequest, progress: _ProduceProgress
) -> _Response | Later[_Response]:
    if request.acks == ACKS_NONE:
        failure = _first_failure(progress.response)
        if failure is not None:
            raise CloseConnection(f"produce with acks=0 failed for {failure}")
        return None
    if not progress.pending:
        return progress.response
    operation = DelayedProduce([pending for pending, _ in progress.pending], owner=ctx.connection)
    deadline_ms = ctx.broker.clock.monotonic_ms() + max(request.timeout_ms, 0)
    ctx.broker.purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
    return operation.errors.into(partial(_acknowledge, progress))


def _acknowledge(progress: _ProduceProgress, errors: list[ErrorCode]) -> _Response:
    """Return the response, with the errors of the batches that were pending, in their order."""
    for (_, partition_response), code in zip(progress.pending, errors, strict=True):
        if code:
            partition_response.error_code, partition_response.base_offset = code, -1
            partition_response.log_append_time_ms = partition_response.log_start_offset = -1
    return progress.response


def _first_failure(response: ProduceResponse) -> str | None:
    """The first refused partition, and the reason: for the log, because there is no response."""
    for topic in response.responses:
        for partition_response in topic.partition_responses:
            if partition_response.error_code:
                code, reason = (
                    ErrorCode(partition_response.error_code).name,
                    partition_response.error_message or "",
                )
                return f"{topic.name[:250]}-{partition_response.index}: {code} {reason}"
    return None


def _find_topic(ctx: RequestContext, data: TopicProduceData) -> Topic | None:
    if ctx.api_version >= TOPIC_IDS_SINCE:
        return ctx.broker.topics.get_by_id(data.topic_id)
    return ctx.broker.topics.get(data.name)


def _find_partition(ctx: RequestContext, topic: Topic | None, index: int) -> Partition:
    if topic is None:
        by_id = ctx.api_version >= TOPIC_IDS_SINCE
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is for the broker alone")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]
