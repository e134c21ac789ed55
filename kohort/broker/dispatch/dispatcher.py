"""Decodes requests, calls their handlers, and encodes the responses.

A request is never left unanswered: if its response can carry an error it does so, whatever the
handler raised; if it cannot, or the request was invalid, the connection is closed and the reason
logged.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from types import GeneratorType
from typing import Any, TypeVar

from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import (
    NoErrorField,
    error_response,
    error_steps,
    refusal,
    unsupported_version,
)
from kohort.broker.dispatch.long_requests import LONG_BYTES
from kohort.broker.dispatch.parts import join, parts_of
from kohort.broker.dispatch.registry import Route, Router
from kohort.broker.dispatch.throttling import Charging, NoQuotas
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import (
    CloseConnection,
    ConnectionInfo,
    ResponseBuffers,
)
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import Slice, run
from kohort.groups.steps import Steps, at_once
from kohort.protocol.codec import Buffer, codec
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from kohort.protocol.framing import (
    API_VERSIONS_KEY,
    RequestHeader,
    read_request_prefix,
    response_buffers,
    response_buffers_in_steps,
    response_frame,
    skip_header_tags,
)
from kohort.protocol.message import Struct
from kohort.protocol.messages.api_versions import ApiVersionsResponse

T = TypeVar("T")

_Call = tuple[RequestContext, Route, Any, float, int]
"""A request being handled: context, route, request, start time on `perf_counter`, and its size in
bytes. Not a class, because one is made for every request."""


class Dispatcher:
    """The service behind all connections of a broker."""

    def __init__(
        self, router: Router, broker: BrokerServices, metrics: NetworkMetrics, log: PeerLog
    ) -> None:
        self._router = router
        self._routes = router.routes
        self._broker = broker
        self._quotas = broker.quotas or NoQuotas()
        if broker.quotas is not None:
            self._charging = Charging(broker.quotas, broker.clock)
        self._metrics = metrics
        self._log = log

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Later[ResponseBuffers]:
        # Inlined as far as possible: every request pays for this.
        started_s = perf_counter()
        try:
            header, position = read_request_prefix(frame)
        except DecodeError as error:
            raise self._rejected("malformed_header", str(error)) from None
        key, version = header.api_key, header.api_version
        route = self._routes.get((key, version)) or self._router.find(key, version)
        if route is None:
            return self._answer_unserved(header)
        size = len(frame)
        if size > route.long_bytes:
            return self._serve_long(header, connection, frame, route, position, started_s)
        try:
            if route.request_header_has_tags:
                position = skip_header_tags(frame, position)
            request, end = route.decode(frame, position)
        except DecodeError as error:
            raise self._malformed(route, header, error) from None
        if end != size:
            self._note_extra_bytes(route, header, connection, size - end)
        ctx = RequestContext(header, connection, self._broker)
        call = (ctx, route, request, started_s, size)
        try:
            returned: Any = route.handler(ctx, request)
        except Exception as error:  # noqa: BLE001 - every one of them is answered.
            is_long = size > LONG_BYTES
            return self._begin_failing(call, error) if is_long else self._fail(call, error)
        kind = returned.__class__
        if returned is None or kind is route.response:
            return self._answer(call, returned)
        if kind is EncodedResponse:
            return self._give(call, returned)
        return self._continue(call, returned)

    def _continue(self, call: _Call, returned: Any) -> ResponseBuffers | Later[ResponseBuffers]:  # noqa: ANN401
        """Serve a request whose handler waits, or returned steps."""
        ctx, route, _, started_s, _ = call
        if isinstance(returned, GeneratorType):
            return self._begin_steps(call, returned)
        if route.api.is_task:
            return self._run(ctx, self._finish_long(call, returned), route, started_s, call)
        kind = returned.__class__
        assert kind is Later, f"{route.api.name} returned {kind.__name__}"
        worked_s = 0.0
        if self._quotas.is_limiting:
            worked_s, ctx.connection.worked_s = perf_counter() - started_s, 0.0
        if returned.is_done:
            return self._finish(call, worked_s, returned)
        answer: Later[ResponseBuffers] = returned.settle(partial(self._finish, call, worked_s))
        return answer

    def _serve_long(
        self,
        header: RequestHeader,
        connection: ConnectionInfo,
        frame: Buffer,
        route: Route,
        position: int,
        started_s: float,
    ) -> Later[ResponseBuffers]:
        """Serve a long request in slices. If its client disconnects, the remaining parts are not
        executed.
        """
        ctx = RequestContext(header, connection, self._broker, is_long=True)
        work = self._work_long(ctx, frame, route, position, started_s)
        return self._run(ctx, work, route, started_s)

    def _begin_steps(
        self, call: _Call, steps: Steps[Any]
    ) -> ResponseBuffers | Later[ResponseBuffers]:
        """Run a handler's steps for one slice; if there are more, continue in a task."""
        ctx, route, _, started_s, _ = call
        piece = Slice(self._broker.clock)
        try:
            while not piece.is_over():
                next(steps)
        except StopIteration as stop:
            returned = stop.value
            if isinstance(returned, Later):
                return self._continue(call, returned)
            return self._answer(call, returned)
        except Exception as error:  # noqa: BLE001 - every one of them is answered.
            return self._fail(call, error)
        return self._run(ctx, self._work_on(call, steps), route, started_s, call)

    def _run(
        self,
        ctx: RequestContext,
        work: Coroutine[Any, Any, ResponseBuffers],
        route: Route,
        started_s: float,
        call: _Call | None = None,
    ) -> Later[ResponseBuffers]:
        """Run a coroutine that serves a request; `call` is None if that is not decoded yet."""
        ctx.connection.worked_s = perf_counter() - started_s
        return ctx.run(work, name=route.api.name).settle(partial(self._end_long, call))

    def _end_long(self, call: _Call | None, later: Later[ResponseBuffers]) -> ResponseBuffers:
        try:
            return later.result()
        except asyncio.CancelledError:
            # The broker is stopping; it is unknown whether the request took effect.
            if call is None:
                raise self._rejected("not_answerable", "interrupted") from None
            return self._fail(call, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "interrupted"))

    async def _work_long(
        self,
        ctx: RequestContext,
        frame: Buffer,
        route: Route,
        position: int,
        started_s: float,
    ) -> ResponseBuffers:
        broker = self._broker
        async with broker.long_requests.turn(_client_key(ctx)):
            piece = Slice(broker.clock)
            try:
                if route.request_header_has_tags:
                    position = skip_header_tags(frame, position)
                decoding = route.request_codec.decode_in_steps(frame, position)
                request, end = await run(decoding, piece)
            except DecodeError as error:
                raise self._malformed(route, ctx.header, error) from None
            size = len(frame)
            if end != size:
                self._note_extra_bytes(route, ctx.header, ctx.connection, size - end)
            call = (ctx, route, request, started_s, size)
            try:
                returned = await self._handle_parts(ctx, route, request, piece)
                if isinstance(returned, GeneratorType):
                    returned = await run(returned, piece)
            except Exception as error:  # noqa: BLE001 - every one of them is answered.
                return await run(self._failing(call, error, self._waited_s(call)), piece)
        return await self._finish_long(call, returned)

    async def _work_on(self, call: _Call, steps: Steps[Any]) -> ResponseBuffers:
        try:
            returned = await self._run_in_turn(call[0], steps)
        except Exception as error:  # noqa: BLE001 - every one of them is answered.
            return await self._fail_long(call, error)
        return await self._finish_long(call, returned)

    async def _handle_parts(
        self,
        ctx: RequestContext,
        route: Route,
        request: Any,  # noqa: ANN401
        piece: Slice,
    ) -> Any:  # noqa: ANN401
        """Call the handler with each part of the request; return the joined responses. A request
        whose API has no parts is given to its handler as a whole.
        """
        lists = route.lists
        if lists is None:
            return route.handler(ctx, request)
        route.api.prepare(ctx, request)
        whole: Any = None
        for part, continues in parts_of(request, lists.request, route.api.part_max):
            try:
                response: Any = route.handler(ctx, part)
                if isinstance(response, GeneratorType):
                    response = await run(response, piece)
                if isinstance(response, Later):
                    # Other long requests wait as well, up to offsets.commit.timeout.ms: otherwise
                    # any number of decoded requests could be in memory.
                    response = await response
            except KafkaError as error:
                response = error_response(
                    route.api.on_error, part, route.version, error.code, error.message
                )
            if isinstance(response, EncodedResponse):
                response, _ = route.response_codec.decode(response.body, 0)
            if whole is None:
                whole = response
            else:
                join(whole, response, lists.response, continues=continues)
            await piece.pause()
        return whole

    async def _finish_long(self, call: _Call, returned: Any) -> ResponseBuffers:  # noqa: ANN401
        """Wait for the response if necessary, and encode it in slices."""
        try:
            response = await returned if isinstance(returned, Later) else returned
        except Exception as error:  # noqa: BLE001 - every one of them is answered.
            return await self._fail_long(call, error)
        if response is None:
            return self._answer(call, response, self._waited_s(call))
        if isinstance(response, EncodedResponse):
            return self._give(call, response, self._waited_s(call))
        ctx, route, _, _, _ = call
        encoding = _buffers_in_steps(ctx.header, route, response)
        piece = Slice(self._broker.clock)
        try:
            while not piece.is_over():
                next(encoding)
            buffers = await self._run_in_turn(ctx, encoding)
        except StopIteration as stop:
            buffers = stop.value
        except EncodeError as error:
            return self._fail(call, error, self._waited_s(call))
        return self._charge(call, response, buffers, self._waited_s(call))

    def _begin_failing(self, call: _Call, error: Exception) -> Later[ResponseBuffers]:
        ctx, route, _, started_s, _ = call
        return self._run(ctx, self._fail_long(call, error), route, started_s, call)

    async def _fail_long(self, call: _Call, error: Exception) -> ResponseBuffers:
        """Answer with the error as `_fail`; in slices, if the request is long."""
        ctx, _, _, _, size = call
        failing = self._failing(call, error, self._waited_s(call))
        return await self._run_in_turn(ctx, failing) if size > LONG_BYTES else at_once(failing)

    async def _run_in_turn(self, ctx: RequestContext, steps: Steps[T]) -> T:
        async with self._broker.long_requests.turn(_client_key(ctx)):
            return await run(steps, Slice(self._broker.clock))

    def _waited_s(self, call: _Call) -> float:
        """Return the time during which a request that is executed in slices was not worked on."""
        ctx, _, _, started_s, _ = call
        return perf_counter() - started_s - ctx.connection.worked_s

    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        """The answer to a request that is not served, as it comes too early; None where it asks
        for none. Raises CloseConnection where there is no answer that could say so.
        """
        started_s = perf_counter()
        try:
            header, position = read_request_prefix(frame)
            route = self._router.find(header.api_key, header.api_version)
            if route is None:
                raise self._unserved(header)
            if route.request_header_has_tags:
                position = skip_header_tags(frame, position)
            request, _ = route.decode(frame, position)
        except DecodeError as error:
            raise self._rejected("malformed_body", f"refused, and {error}") from None
        name, duration_s = route.api.name, perf_counter() - started_s
        self._metrics.request_failed(name, route.version, code, duration_s)
        if not route.api.is_answered(request):
            return None
        try:
            return _buffers(
                header, route, refusal(route.api.on_error, request, route.version, code)
            )
        except EncodeError as error:
            raise self._rejected("not_answerable", f"{name}: {code.name}, {error}") from None

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self._broker.purgatory.cancel_owner(connection)

    async def close(self) -> None:
        """Cancel the handlers that are still running and wait until they have ended."""
        tasks = list(self._broker.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answer(
        self, call: _Call, response: Struct | None, waited_s: float = 0.0
    ) -> ResponseBuffers:
        """Encode a handler's response; None is for requests without a response. For
        `waited_s` of the time since it came nothing was done for the request.
        """
        ctx, route, _, _, _ = call
        buffers: ResponseBuffers = None
        if response is not None:
            try:
                buffers = _buffers(ctx.header, route, response)
            except EncodeError as error:
                return self._fail(call, error, waited_s)
        return self._charge(call, response, buffers, waited_s)

    def _charge(
        self, call: _Call, response: Struct | None, buffers: ResponseBuffers, waited_s: float
    ) -> ResponseBuffers:
        """Charge the client, and throttle it if it is above its quota."""
        ctx, route, _, started_s, size = call
        duration_s = perf_counter() - started_s
        if self._quotas.is_limiting:
            used_s = duration_s - waited_s
            throttle_ms = self._charging.charge(ctx, size, used_s, buffers, response)
            if throttle_ms:
                buffers = _throttle(ctx, route, response, throttle_ms) or buffers
        self._metrics.request_answered(route.api.name, route.version, response, duration_s)
        return buffers

    def _give(self, call: _Call, answer: EncodedResponse, waited_s: float = 0.0) -> ResponseBuffers:
        """Send a response that was encoded before; `waited_s` as of `_answer`."""
        ctx, route, _, started_s, size = call
        has_tags = route.response_header_has_tags
        buffers: list[Buffer] = [
            response_frame(ctx.header.correlation_id, answer.body, header_has_tags=has_tags)
        ]
        duration_s = perf_counter() - started_s
        if self._quotas.is_limiting:
            used_s = duration_s - waited_s
            throttle_ms = self._charging.charge(ctx, size, used_s, buffers, None)
            if throttle_ms:
                told, _ = route.response_codec.decode(answer.body, 0)
                buffers = _throttle(ctx, route, told, throttle_ms) or buffers
        self._metrics.request_answered(route.api.name, route.version, None, duration_s)
        return buffers

    def _finish(self, call: _Call, worked_s: float, later: Later[Any]) -> ResponseBuffers:
        """Process the result of a handler that had to wait, and had taken `worked_s` by then."""
        waited_s = 0.0
        if self._quotas.is_limiting:
            # If limits have come into force meanwhile, what went before counts as waiting.
            ctx, _, _, started_s, _ = call
            waited_s = perf_counter() - started_s - worked_s - ctx.connection.worked_s
        try:
            returned = later.result()
        except asyncio.CancelledError:
            # The broker is stopping; it is unknown whether the request took effect.
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "interrupted")
            return self._fail(call, error, waited_s)
        except Exception as error:  # noqa: BLE001 - all of them are answered.
            return self._fail(call, error, waited_s)
        if returned.__class__ is EncodedResponse:
            return self._give(call, returned, waited_s)
        return self._answer(call, returned, waited_s)

    def _fail(self, call: _Call, error: Exception, waited_s: float = 0.0) -> ResponseBuffers:
        """Answer with the error, or raise CloseConnection if the response cannot carry one."""
        return at_once(self._failing(call, error, waited_s))

    def _failing(self, call: _Call, error: Exception, waited_s: float) -> Steps[ResponseBuffers]:
        ctx, route, request, started_s, size = call
        header = ctx.header
        name = f"{route.api.name} v{route.version} of {_client(header)}"
        if isinstance(error, CloseConnection):
            raise self._rejected("not_answerable", f"{name}: {error}") from None
        code, text = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, KafkaError):
            code, text = error.code, error.message
        else:
            self._note_fault(name, error)
        duration_s = perf_counter() - started_s
        self._metrics.request_failed(route.api.name, route.version, code, duration_s)
        if not route.api.is_answered(request):
            raise self._rejected("not_answerable", f"{name}, which asks for no answer: {code.name}")
        try:
            response = yield from error_steps(
                route.api.on_error, request, route.version, code, text
            )
        except NoErrorField:
            raise self._rejected("not_answerable", f"{name}: {code.name}") from None
        try:
            buffers: ResponseBuffers = None
            if size > LONG_BYTES:
                buffers = yield from _buffers_in_steps(header, route, response)
            else:
                buffers = _buffers(header, route, response)
        except EncodeError as unsaid:
            raise self._rejected("not_answerable", f"{name}: {code.name}, {unsaid}") from None
        if self._quotas.is_limiting:
            used_s = duration_s - waited_s
            throttle_ms = self._charging.charge(ctx, size, used_s, buffers, response)
            if throttle_ms:
                buffers = _throttle(ctx, route, response, throttle_ms) or buffers
        return buffers

    def _note_fault(self, name: str, error: Exception) -> None:
        """Log an internal error, rate-limited: a peer may cause it a thousand times a second."""
        if isinstance(error, EncodeError):
            # The message says what cannot be encoded in this version.
            text = "The answer to %s cannot be written: %s"
            self._log.fault("unwritable", text, name, error)
        else:
            text = "Internal error in %s"
            self._log.fault("fault", text, name, error=error)

    def _answer_unserved(self, header: RequestHeader) -> ResponseBuffers:
        """Answer ApiVersions of any version in v0, which every client understands; others cannot be
        answered.
        """
        if header.api_key != API_VERSIONS_KEY:
            raise self._unserved(header)
        response = unsupported_version(self._router.apis[API_VERSIONS_KEY].advertised)
        self._metrics.request_answered("ApiVersions", 0, response, 0.0)
        v0 = codec(ApiVersionsResponse, 0)
        return response_buffers(header.correlation_id, v0, response, header_has_tags=False)

    def _malformed(
        self, route: Route, header: RequestHeader, error: DecodeError
    ) -> CloseConnection:
        text = f"{route.api.name} v{route.version} of {_client(header)}: {error}"
        return self._rejected("malformed_body", text)

    def _unserved(self, header: RequestHeader) -> CloseConnection:
        is_known = header.api_key in self._router.apis
        reason = "unsupported_version" if is_known else "unknown_api"
        text = f"api {header.api_key} v{header.api_version} of {_client(header)}"
        return self._rejected(reason, f"{text} is not served")

    def _rejected(self, reason: str, text: str) -> CloseConnection:
        self._metrics.request_rejected(reason)
        return CloseConnection(text)

    def _note_extra_bytes(
        self, route: Route, header: RequestHeader, connection: ConnectionInfo, byte_count: int
    ) -> None:
        """Ignore bytes after a request, as Kafka does, and log them at debug level.

        They are an error in the client's encoder, or in our definition of the message. But every
        librdkafka up to 2.16 sends some when it requests Metadata of all topics (an array length in
        the format of versions before 9), and an operator could do nothing about it.
        """
        self._log.mention(
            "extra_bytes",
            "Ignored %d bytes after %s v%d of %s at %s (%s %s)",
            byte_count,
            route.api.name,
            route.version,
            _client(header),
            connection.peer_host,
            connection.client_software_name,
            connection.client_software_version,
        )


def _buffers(header: RequestHeader, route: Route, response: Struct) -> list[Buffer]:
    return response_buffers(
        header.correlation_id,
        route.response_codec,
        response,
        header_has_tags=route.response_header_has_tags,
    )


def _buffers_in_steps(header: RequestHeader, route: Route, response: Struct) -> Steps[list[Buffer]]:
    return response_buffers_in_steps(
        header.correlation_id,
        route.response_codec,
        response,
        header_has_tags=route.response_header_has_tags,
    )


def _throttle(
    ctx: RequestContext, route: Route, response: Struct | None, throttle_ms: int
) -> list[Buffer] | None:
    """Throttle the connection once the response is written, and encode the response again with the
    time in it; None if it has no field for that, or there is no response.
    """
    ctx.connection.throttle_ms = throttle_ms
    told: Any = route.api.throttled(response)
    if not hasattr(told, "throttle_time_ms"):
        return None
    told.throttle_time_ms = throttle_ms
    return _buffers(ctx.header, route, told)


def _client_key(ctx: RequestContext) -> tuple[str, str]:
    """Return what all connections of one client have in common."""
    return ctx.session.principal.name, ctx.connection.peer_host


def _client(header: RequestHeader) -> str:
    """Return the client id for the log: it may have 32 kB and contain line breaks."""
    return repr(header.client_id[:100] if header.client_id else header.client_id)
