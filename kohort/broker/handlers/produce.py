"""Produce (key 0): append one batch to each of the named partitions.

v3-13; versions 0 to 2 are advertised but not supported, as in Kafka 4, because an old feature check
of librdkafka looks for version 0. Partitions fail individually. acks=1 and acks=all differ only if
the configuration forces records to disk: acks=all waits for that in the purgatory.

With acks=0 there is no response; a failure is signalled by closing the connection.

Batches of a transaction are appended together, after the other batches, once the coordinator has
verified them: :mod:`kohort.broker.handlers.shared.in_transaction`.
"""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from kohort.broker.core.partition.validation import validation_steps
from kohort.broker.core.partition.verdict import ProduceTerms, RejectedBatch, ValidBatch, Verdict
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, OnError, elements, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.checks import may_use
from kohort.broker.handlers.shared.in_transaction import (
    ADDS_SINCE,
    Candidate,
    append_in_transaction,
)
from kohort.broker.network.service import CloseConnection
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, yield_to_loop
from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.produce import DelayedProduce, PendingAppend
from kohort.broker.topics.topic import Topic
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.protocol.records.batch import (
    LENGTH_OVERHEAD_BYTES,
    LOW_ATTRIBUTES_AT,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)

TOPIC_IDS_SINCE: Final = 13
ACKS_NONE: Final = 0
ACKS_ALL: Final = -1

_LENGTH_LEAST: Final = 14
"""The minimum value of a batch's length field, in any magic version, as in Kafka."""

APPENDS_MS: Final = 5
"""Budget of a time slice: how long a request validates and appends batches before other connections
are served."""


_Wait: TypeAlias = Deferred[None] | Callable[[], Awaitable[object]]
_Steps: TypeAlias = Generator[_Wait, None, None]
"""Yields a `Deferred` to wait for, or a function that returns an awaitable."""

_Response: TypeAlias = ProduceResponse | None
"""A response; None for acks=0."""


@handles(
    ProduceRequest,
    versions="3-13",
    advertised="0-13",
    on_error=OnError(
        elements(
            "responses.partition_responses",
            "topic_data.partition_data",
            BY_NAME_OR_ID,
            same("index"),
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
        )
    ),
    is_answered=lambda request: bool(request.acks != ACKS_NONE),
    # Never decoded in slices: most of the bytes are records, which the handler validates in slices.
    long_bytes=sys.maxsize,
)
def produce(ctx: RequestContext, request: ProduceRequest) -> _Response | Deferred[_Response]:
    """Append the batches at once; if this takes long or has to wait, continue in a task."""
    if _is_transactional(request):
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    call = ProduceCall(ctx, request)
    steps = call.serve()
    try:
        wait = next(steps)
    except StopIteration:
        return call.respond()
    return ctx.run(_finish(call, steps, wait), name="produce")


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether one of the batches is transactional. They are not validated yet."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            # Inlined, because every request pays for this.
            if (
                records is not None
                and len(records) > LOW_ATTRIBUTES_AT
                and records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
                and _is_complete(records)
            ):
                return True
    return False


def _is_complete(records: bytes | memoryview) -> bool:
    """Whether the bytes begin with a complete batch of magic 2; as in Kafka, only such a batch can
    be transactional.
    """
    length = int.from_bytes(records[8:LENGTH_OVERHEAD_BYTES], "big", signed=True)
    is_whole = _LENGTH_LEAST <= length <= len(records) - LENGTH_OVERHEAD_BYTES
    return is_whole and records[MAGIC_AT] == MAGIC


async def _finish(call: "ProduceCall", steps: _Steps, first: _Wait) -> _Response:
    """Run the remaining steps and respond."""
    with closing(steps):
        for wait in chain((first,), steps):
            with suppress(KafkaError):
                await (wait if isinstance(wait, Deferred) else wait())
    response = call.respond()
    return await response if isinstance(response, Deferred) else response


class ProduceCall:
    """One Produce request and its results so far: `serve` all its batches, then `respond`."""

    __slots__ = ("_pending", "_request", "_response", "_time_slice", "_transactional", "ctx")

    def __init__(self, ctx: RequestContext, request: ProduceRequest) -> None:
        self.ctx = ctx
        self._request = request
        self._response = ProduceResponse(responses=[])
        self._pending: list[tuple[PendingAppend, PartitionProduceResponse]] = []
        """Appended batches that are not acknowledged yet, each with its part of the response."""
        self._transactional: list[Candidate] = []
        """Valid batches of a transaction; appended after all others."""
        self._time_slice = Slice(ctx.broker.clock, APPENDS_MS)

    def serve(self) -> _Steps:
        """Validate and append batch by batch. Pauses at the end of a time slice, and waits for the
        lock for large batches and for the transaction coordinator.
        """
        ctx, time_slice = self.ctx, self._time_slice
        topics = ctx.broker.topics
        by_id = ctx.header.api_version >= TOPIC_IDS_SINCE
        for topic_data in self._request.topic_data:
            if not topic_data.partition_data:
                continue
            topic = topics.get_by_id(topic_data.topic_id) if by_id else topics.get(topic_data.name)
            is_allowed = may_use(ctx, Operation.WRITE, topic, topic_data.name, by_id=by_id)
            topic_response = TopicProduceResponse(
                name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=[]
            )
            self._response.responses.append(topic_response)
            for data in topic_data.partition_data:
                if time_slice.is_over():
                    yield yield_to_loop
                    time_slice.begin()
                result = PartitionProduceResponse(
                    index=data.index, error_code=NO_ERROR, base_offset=-1
                )
                topic_response.partition_responses.append(result)
                if not is_allowed:
                    result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                try:
                    partition = _find_partition(topic, data.index, by_id=by_id)
                    wall_ms = ctx.broker.clock.wall_ms()
                    steps = self._validation(partition, data, wall_ms)
                    verdict = self._validate_now(steps)
                    if verdict is None:
                        steps.close()
                        verdict = yield from self._validate_large(partition, data, wall_ms)
                    if isinstance(verdict, RejectedBatch):
                        self._reject(partition, verdict, result)
                    elif verdict.header.attributes & TRANSACTIONAL_BIT:
                        append = partial(
                            self._append,
                            partition,
                            verdict,
                            wall_ms,
                            result,
                            is_first_of_epoch_zero=self.ctx.api_version >= ADDS_SINCE,
                        )
                        candidate = Candidate(partition, verdict, result, append)
                        self._transactional.append(candidate)
                    else:
                        self._append(partition, verdict, wall_ms, result)
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
        if self._transactional:
            yield from self._append_transactional()

    def respond(self) -> _Response | Deferred[_Response]:
        """Return the response, or a `Deferred` if batches have to be forced to disk first.

        Raises:
            CloseConnection: a partition failed, and with acks=0 there is no response to report it.
        """
        request, response = self._request, self._response
        if request.acks == ACKS_NONE:
            failure = _first_failure(response)
            if failure is not None:
                raise CloseConnection(f"produce with acks=0 failed for {failure}")
            return None
        if not self._pending:
            return response
        ctx = self.ctx
        operation = DelayedProduce([append for append, _ in self._pending], owner=ctx.connection)
        deadline_ms = ctx.broker.clock.monotonic_ms() + max(request.timeout_ms, 0)
        ctx.broker.purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
        return operation.errors.map(self._acknowledge)

    def _acknowledge(self, errors: list[ErrorCode]) -> _Response:
        """Return the response; `errors` are those of the pending batches, in order."""
        for (_, result), code in zip(self._pending, errors, strict=True):
            if code:
                result.error_code, result.base_offset = code, -1
                result.log_append_time_ms = result.log_start_offset = -1
        return self._response

    def _validation(
        self, partition: Partition, data: PartitionProduceData, wall_ms: int
    ) -> Steps[Verdict]:
        ctx, request = self.ctx, self._request
        terms = ProduceTerms(
            ctx.header.api_version, request.acks, request.transactional_id is not None, wall_ms
        )
        limit = ctx.broker.inflated_batch_bytes_max
        return validation_steps(data.records, partition.config, terms, limit)

    def _validate_now(self, steps: Steps[Verdict]) -> Verdict | None:
        """Validate a batch within the time slice; None if the slice ends first, or if the batch
        needs a second step while another request validates a large batch.
        """
        large_batch = self.ctx.broker.large_batch
        while True:
            try:
                next(steps)
            except StopIteration as done:
                verdict: Verdict = done.value
                return verdict
            # While another request has the lock, no batch continues after its first step: otherwise
            # two batches would be decompressed at a time.
            if self._time_slice.is_over() or large_batch.locked():
                return None

    def _validate_large(
        self, partition: Partition, data: PartitionProduceData, wall_ms: int
    ) -> Generator[_Wait, None, Verdict]:
        """Validate a batch from its beginning, as soon as no other request validates a large batch:
        validation may take much memory.

        The data decompressed so far is dropped, because each waiting request would keep some. That
        costs one time slice at most.
        """
        large_batch = self.ctx.broker.large_batch
        yield yield_to_loop
        yield large_batch.acquire
        try:
            self._time_slice.begin()
            steps = self._validation(partition, data, wall_ms)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    verdict: Verdict = done.value
                    return verdict
                if self._time_slice.is_over():
                    yield yield_to_loop
                    self._time_slice.begin()
        finally:
            large_batch.release()

    def _reject(
        self, partition: Partition, verdict: RejectedBatch, result: PartitionProduceResponse
    ) -> None:
        result.error_code, result.error_message = verdict.code, verdict.message
        result.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=error.batch_index, batch_index_error_message=error.message
            )
            for error in verdict.record_errors
        ]
        if verdict.reports_log_start:
            result.log_start_offset = partition.log.log_start_offset
        log = self.ctx.broker.log
        if verdict.code is ErrorCode.MESSAGE_TOO_LARGE and log is not None:
            # Logged because responses before v8 have no message to name the exceeded limit.
            text = "Rejected a batch of client %s for %s-%d: %s"
            client, name = self.ctx.header.client_id, partition.topic_name
            log.note("batch_too_large", text, client, name, result.index, verdict.message)

    def _append(
        self,
        partition: Partition,
        batch: ValidBatch,
        wall_ms: int,
        result: PartitionProduceResponse,
        *,
        is_first_of_epoch_zero: bool = False,
    ) -> None:
        """Append a valid batch. Raises KafkaError."""
        partition.check_online()
        result.log_start_offset = partition.log.log_start_offset
        try:
            appended = partition.append(
                batch.batch,
                batch.header,
                wall_ms=wall_ms,
                is_first_of_epoch_zero=is_first_of_epoch_zero,
            )
        except StorageError:
            result.log_start_offset = -1
            raise
        result.base_offset = appended.base_offset
        if batch.log_append_time_ms >= 0:
            result.log_append_time_ms = appended.appended_ms
        pending = PendingAppend(partition, appended.next_offset)
        if self._request.acks == ACKS_ALL and not pending.is_decided:
            self._pending.append((pending, result))

    def _append_transactional(self) -> _Steps:
        ctx, transactional_id = self.ctx, self._request.transactional_id
        assert transactional_id is not None
        # They refer to this call: no cycle may be left.
        candidates, self._transactional = self._transactional, []
        yield from append_in_transaction(
            ctx.broker.transactions, transactional_id, ctx.api_version, ctx.client, candidates
        )


def _first_failure(response: ProduceResponse) -> str | None:
    """Return the first failed partition and its error, to be logged; None if none failed."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                code, reason = ErrorCode(result.error_code).name, result.error_message or ""
                return f"{topic.name[:250]}-{result.index}: {code} {reason}"
    return None


def _find_partition(topic: Topic | None, index: int, *, by_id: bool) -> Partition:
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} can be written only by the broker"
        )
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]
