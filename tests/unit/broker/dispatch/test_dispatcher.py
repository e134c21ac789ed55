import asyncio
import inspect
import logging
import re
import struct
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from kohort.broker.core.purgatory import Completion, DelayedOperation, Purgatory
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.registry import Api, AsyncHandler, Handler, Router
from kohort.broker.handlers import load_handlers
from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.service import CloseConnection, ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.fair_lock import FairLock
from kohort.broker.runtime.peer_log import LINES_PER_INTERVAL, PeerLog
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.message import schema_of
from kohort.testing.virtual_clock import VirtualClock
from tests.support import messages as m

T = TypeVar("T")
CONNECTION = ConnectionInfo(peer_host="/10.0.0.1")
HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def header(
    key: int, version: int, *, client_id: bytes | None = b"client", tags: bytes | None = None
) -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 77, length) + (client_id or b"") + (tags or b"")


def request_frame(request: object, version: int, extra: bytes = b"") -> bytes:
    schema = schema_of(type(request))
    assert schema.key is not None
    tags = b"\x00" if schema.is_flexible(version) else None
    return (
        header(schema.key, version, tags=tags)
        + codec(type(request), version).encode(request)
        + extra
    )


def produce(acks: int) -> m.ProduceRequest:
    return m.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=100,
        topic_data=[
            m.TopicProduceData(
                name="t", partition_data=[m.PartitionProduceData(index=3, records=b"x")]
            )
        ],
    )


class Side:
    """A dispatcher with the handlers of one test."""

    def __init__(self, **handlers: Handler | AsyncHandler) -> None:
        requests = {
            "heartbeat": (m.HeartbeatRequest, "1-4"),
            "metadata": (m.MetadataRequest, "0-13"),
            "produce": (m.ProduceRequest, "3-13"),
            "api_versions": (m.ApiVersionsRequest, "0-5"),
        }
        handlers.setdefault("api_versions", lambda ctx, request: None)
        served = {api.request: api for api in load_handlers().values()}
        apis = [
            Api(
                request,
                versions=versions,
                on_error=served[request].on_error,
                is_answered=served[request].is_answered,
            ).handled_by(handlers[name])
            for name, (request, versions) in requests.items()
            if name in handlers
        ]
        self.purgatory = Purgatory(report=lambda doing, error: None)
        self.metrics = EdgeMetrics()
        self.dispatcher = Dispatcher(
            Router({api.key: api for api in apis}),
            cast(
                BrokerServices,
                SimpleNamespace(
                    purgatory=self.purgatory,
                    tasks=set(),
                    quotas=None,
                    clock=VirtualClock(),
                    long_requests=FairLock(),
                ),
            ),
            self.metrics,
            PeerLog(logging.getLogger("peers"), VirtualClock()),
        )

    def serve(self, frame: bytes) -> ResponseBuffers | Deferred[ResponseBuffers]:
        return self.dispatcher.serve(CONNECTION, frame)

    def answer(self, frame: bytes) -> bytes:
        answer = self.serve(frame)
        assert isinstance(answer, list)
        return b"".join(answer)

    def error_counts(self) -> dict[str, dict[int, int]]:
        return {meter.api: meter.errors for meter in self.metrics.request_meters()}


def decoded(answer: bytes, response: type[T], version: int, *, tags: bool) -> T:
    size, correlation_id = struct.unpack_from(">ii", answer)
    assert size == len(answer) - 4
    assert correlation_id == 77
    position = 8
    if tags:
        assert answer[8] == 0
        position = 9
    message, end = codec(response, version).decode(answer, position)
    assert end == len(answer)
    return message


def ok(ctx: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=0)


def raising(error: Exception) -> Callable[[RequestContext, Any], Any]:
    def handler(ctx: RequestContext, request: object) -> None:
        raise error

    return handler


@pytest.mark.parametrize(("version", "tags"), [(1, False), (3, False), (4, True)])
def test_a_plain_handler_is_answered_at_once_in_the_version_of_the_request(
    version: int, tags: bool
) -> None:
    seen: list[tuple[RequestContext, m.HeartbeatRequest]] = []

    def heartbeat(ctx: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        seen.append((ctx, request))
        return m.HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, throttle_time_ms=5)

    side = Side(heartbeat=heartbeat)
    answer = side.answer(request_frame(HEARTBEAT, version))
    assert decoded(answer, m.HeartbeatResponse, version, tags=tags) == m.HeartbeatResponse(
        error_code=27, throttle_time_ms=5
    )
    ((ctx, request),) = seen
    assert request == HEARTBEAT
    assert (ctx.api_version, ctx.header.client_id) == (version, "client")
    assert ctx.connection is CONNECTION
    assert side.error_counts() == {"Heartbeat": {27: 1}}


async def test_a_handler_may_answer_later_and_what_is_there_already_costs_no_turn() -> None:
    answers: list[Deferred[m.HeartbeatResponse]] = []

    def heartbeat(
        ctx: RequestContext, request: m.HeartbeatRequest
    ) -> Deferred[m.HeartbeatResponse]:
        answer: Deferred[m.HeartbeatResponse] = Deferred()
        if answers:
            answer.set_result(m.HeartbeatResponse(error_code=0))
        answers.append(answer)
        return answer

    side = Side(heartbeat=heartbeat)
    assert isinstance(side.serve(request_frame(HEARTBEAT, 4)), Deferred)
    assert isinstance(side.serve(request_frame(HEARTBEAT, 4)), list)


def test_unknown_header_tags_are_ignored() -> None:
    side = Side(heartbeat=ok)
    body = codec(m.HeartbeatRequest, 4).encode(HEARTBEAT)
    tags = b"\x02" + b"\x05\x03abc" + b"\x06\x00"
    assert side.answer(header(12, 4, tags=tags) + body)


def test_extra_bytes_are_ignored_and_named_to_those_who_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    side = Side(heartbeat=ok)
    frame = request_frame(HEARTBEAT, 4, extra=b"extra")
    assert side.answer(frame)
    assert not caplog.messages
    with caplog.at_level(logging.DEBUG):
        assert side.answer(frame)
    assert "5 bytes after Heartbeat v4 of 'client' at /10.0.0.1" in caplog.text


def test_librdkafka_may_ask_for_all_topics_as_it_does(caplog: pytest.LogCaptureFixture) -> None:
    """It writes the length of "all topics" in four bytes, of which we read one as that length and
    the others as the flags behind it.
    """
    asked = []
    side = Side(metadata=lambda ctx, request: asked.append(request))
    assert side.serve(header(3, 13, tags=b"\x00") + b"\0\0\0\0\1\0\0") is None
    assert [request.topics for request in asked] == [None]
    assert not caplog.messages


@pytest.mark.parametrize("version", [6, 99, -1, 32767])
def test_api_versions_in_an_unknown_version_is_answered_in_v0_with_its_own_range(
    version: int,
) -> None:
    side = Side(heartbeat=ok)
    answer = side.answer(header(18, version) + b"anything at all")
    message = decoded(answer, m.ApiVersionsResponse, 0, tags=False)
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(v.api_key, v.min_version, v.max_version) for v in message.api_keys] == [(18, 0, 5)]
    assert len(answer) == 4 + 16


def test_api_versions_has_no_tags_in_its_response_header() -> None:
    side = Side(api_versions=lambda ctx, request: m.ApiVersionsResponse(error_code=0, api_keys=[]))
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = side.answer(request_frame(request, 3))
    assert decoded(answer, m.ApiVersionsResponse, 3, tags=False).error_code == 0


HEARTBEAT_BODY = codec(m.HeartbeatRequest, 4).encode(HEARTBEAT)


@pytest.mark.parametrize(
    ("frame", "reason", "text"),
    [
        (header(999, 0), "unknown_api", "api 999 v0 of 'client'"),
        (header(-1, 0), "unknown_api", "api -1 v0"),
        (header(4, 0), "unknown_api", "api 4 v0"),
        (header(11, 99), "unknown_api", "api 11 v99"),
        (header(12, 0), "unsupported_version", "api 12 v0 of 'client'"),
        (header(12, 5), "unsupported_version", "api 12 v5"),
        (header(12, -1), "unsupported_version", "api 12 v-1"),
        (b"", "malformed_header", "shorter than a request header"),
        (b"\x00\x0c\x00\x04\x00", "malformed_header", "shorter than a request header"),
        (struct.pack(">hhih", 12, 4, 1, 100), "malformed_header", "client id exceeds"),
        (struct.pack(">hhih", 12, 4, 1, -2), "malformed_header", "client id of length -2"),
        (header(12, 4, client_id=b"\xff\xfe"), "malformed_header", "not UTF-8"),
        (header(12, 4), "malformed_body", "Heartbeat v4 of 'client': a header ends early"),
        (header(12, 4, tags=b"\x01\x05\x09a"), "malformed_body", "exceeds what is left"),
        (header(12, 4, tags=b"\x02\x05\x00\x05\x00"), "malformed_body", "twice"),
        (header(12, 4, tags=b"\x00") + HEARTBEAT_BODY[:-4], "malformed_body", "Heartbeat v4"),
        (header(12, 4, tags=b"\x00\x7fab"), "malformed_body", "exceeds what is left"),
        (header(12, 4, tags=b"\x00\x03\xff\xff"), "malformed_body", "not UTF-8"),
    ],
)
def test_what_cannot_be_understood_closes_the_connection_and_is_named_and_counted(
    frame: bytes, reason: str, text: str
) -> None:
    side = Side(heartbeat=ok)
    with pytest.raises(CloseConnection, match=text):
        side.serve(frame)
    assert side.metrics.rejected == {reason: 1}


def test_a_long_client_id_does_not_fill_the_log() -> None:
    side = Side(heartbeat=ok)
    with pytest.raises(CloseConnection) as caught:
        side.serve(header(999, 0, client_id=b"x\n" * 16_000))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


class Unsayable(IntEnum):
    CODE = 1 << 40


@pytest.mark.parametrize(
    ("handler", "traces"),
    [
        (lambda ctx, request: m.HeartbeatResponse(error_code=1 << 40), False),
        (raising(RuntimeError("our mistake")), True),
    ],
)
def test_who_makes_us_fail_many_times_does_not_fill_the_log(
    handler: Handler, traces: bool, caplog: pytest.LogCaptureFixture
) -> None:
    side = Side(heartbeat=handler)
    for _ in range(1_000):
        side.answer(request_frame(HEARTBEAT, 4))
    assert len(caplog.records) == LINES_PER_INTERVAL
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert ("Traceback" in caplog.text) is traces


def test_an_error_that_cannot_be_said_in_the_answer_closes_the_connection() -> None:
    def heartbeat(ctx: RequestContext, request: object) -> None:
        error = KafkaError(ErrorCode.NONE)
        error.code = Unsayable.CODE  # type: ignore[assignment]  # No response has room for it.
        raise error

    side = Side(heartbeat=heartbeat)
    with pytest.raises(CloseConnection):
        side.serve(request_frame(HEARTBEAT, 4))
    assert side.metrics.rejected == {"not_answerable": 1}


async def test_an_async_handler_that_raises_is_answered_too() -> None:
    async def heartbeat(ctx: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        await asyncio.sleep(0)
        raise RuntimeError("our mistake")

    side = Side(heartbeat=heartbeat)
    pending = side.serve(request_frame(HEARTBEAT, 4))
    assert isinstance(pending, Deferred)
    answer = await pending
    assert answer is not None
    message = decoded(b"".join(answer), m.HeartbeatResponse, 4, tags=True)
    assert message.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_handlers_that_are_interrupted_by_the_shutdown_are_answered_too() -> None:
    async def heartbeat(ctx: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        await asyncio.sleep(1_000)
        raise AssertionError

    side = Side(heartbeat=heartbeat)
    pending = side.serve(request_frame(HEARTBEAT, 4))
    assert isinstance(pending, Deferred)
    await asyncio.sleep(0)
    await side.dispatcher.close()
    answer = await pending
    assert answer is not None
    message = decoded(b"".join(answer), m.HeartbeatResponse, 4, tags=True)
    assert message.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "error", [RuntimeError("our mistake"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_a_failed_produce_without_acks_closes_the_connection(error: Exception) -> None:
    side = Side(produce=raising(error))
    with pytest.raises(CloseConnection, match="Produce v9 of 'client', which expects no response"):
        side.serve(request_frame(produce(acks=0), 9))
    assert side.metrics.rejected == {"not_answerable": 1}


def test_a_handler_may_close_the_connection() -> None:
    side = Side(heartbeat=raising(CloseConnection("as the protocol wants")))
    with pytest.raises(CloseConnection, match="Heartbeat v4 of 'client': as the protocol wants"):
        side.serve(request_frame(HEARTBEAT, 4))


class Parked(DelayedOperation):
    kind = "Fetch"
    is_cancelled = False

    def try_complete(self, key: object = None) -> bool:
        return False

    def on_complete(self, completion: Completion) -> None:
        raise AssertionError

    def on_failed(self, error: Exception) -> None:
        raise AssertionError

    def on_cancelled(self) -> None:
        self.is_cancelled = True


def test_a_client_that_is_gone_loses_what_it_parked_in_the_purgatory() -> None:
    side = Side()
    operation, other = Parked(owner=CONNECTION), Parked(owner=ConnectionInfo(peer_host="/10.0.0.2"))
    side.purgatory.try_complete_else_watch(operation, ["k"], 100)
    side.purgatory.try_complete_else_watch(other, ["k"], 100)
    side.dispatcher.connection_lost(CONNECTION)
    assert (operation.is_cancelled, other.is_cancelled) == (True, False)


@pytest.mark.parametrize("api", load_handlers().values(), ids=lambda api: api.name)
def test_every_handler_answers_now_or_by_a_later(api: Api) -> None:
    """What a plain function returns is not looked at beyond that: a coroutine would be lost."""
    handler = inspect.unwrap(api.handler)
    if inspect.iscoroutinefunction(handler):
        return
    returned = str(inspect.signature(handler).return_annotation)
    assert not re.search("Coroutine|Task|Future|Awaitable", returned), returned
