"""Sends the result of a handler as the response: encodes the result, charges the client's quotas,
and counts the request.

Whatever a handler raises becomes an error response. If the response has no field for the error, or
the client expects none, the connection is closed and the reason logged.
"""

import asyncio
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

from kohort.broker.core.security.account import FETCH_KEY
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import NoErrorField, error_steps
from kohort.broker.dispatch.registry import LONG_BYTES, Route
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import CloseConnection, ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.groups.steps import Steps, at_once
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from kohort.protocol.framing import (
    RequestHeader,
    response_buffers,
    response_buffers_in_steps,
    response_frame,
)
from kohort.protocol.message import Struct


class NoQuotas:
    """Quotas that limit no client."""

    __slots__ = ()

    is_limiting: Final = False


Call: TypeAlias = tuple[RequestContext, Route, Any, float, int]
"""A request being handled: context, route, request, start time on `perf_counter`, and its size in
bytes. A tuple, because every request needs one, and creating a class instance takes longer."""


class Responder:
    """Responds to requests; shared by all connections."""

    def __init__(self, broker: BrokerServices, metrics: NetworkMetrics, log: PeerLog) -> None:
        self._quotas: ClientQuotas | NoQuotas = broker.quotas or NoQuotas()
        self._now_s = broker.clock.monotonic_s
        self._metrics = metrics
        self._log = log

    def respond(
        self, call: Call, response: Struct | EncodedResponse | None, waited_s: float = 0.0
    ) -> ResponseBuffers:
        """Encode a handler's response; None is for requests without a response."""
        buffers: ResponseBuffers = None
        if response is not None:
            try:
                buffers = encode(call[0].header, call[1], response)
            except EncodeError as error:
                return self.fail(call, error, waited_s)
        return self.account(call, response, buffers, waited_s)

    def account(
        self,
        call: Call,
        response: Struct | EncodedResponse | None,
        buffers: ResponseBuffers,
        waited_s: float,
    ) -> ResponseBuffers:
        """Charge and count a request whose response is encoded; return what to send."""
        _, route, _, started_s, _ = call
        duration_s = perf_counter() - started_s
        if self._quotas.is_limiting:
            buffers = self._charge(call, duration_s - waited_s, buffers, response)
        counted = None if response.__class__ is EncodedResponse else response
        self._metrics.request_answered(route.api.name, route.version, counted, duration_s)
        return buffers

    def respond_later(
        self, call: Call, result: Deferred[Any]
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        worked_s = 0.0
        if self._quotas.is_limiting:
            ctx, _, _, started_s, _ = call
            worked_s, ctx.connection.worked_s = perf_counter() - started_s, 0.0
        if result.is_done:
            return self._finish(call, worked_s, result)
        response: Deferred[ResponseBuffers] = result.finally_(partial(self._finish, call, worked_s))
        return response

    def _finish(self, call: Call, worked_s: float, result: Deferred[Any]) -> ResponseBuffers:
        """Respond with `result`; the handler ran for `worked_s` seconds before it waited for the
        result.
        """
        waited_s = 0.0
        if self._quotas.is_limiting:
            # If the first quota was set while the handler was waiting, running time before that was
            # not measured, and counts as waiting.
            ctx, _, _, started_s, _ = call
            waited_s = perf_counter() - started_s - worked_s - ctx.connection.worked_s
        try:
            response = result.result()
        except asyncio.CancelledError:
            return self.fail(call, interrupted(), waited_s)
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            return self.fail(call, error, waited_s)
        return self.respond(call, response, waited_s)

    def fail(self, call: Call, error: Exception, waited_s: float = 0.0) -> ResponseBuffers:
        """Respond with the error, or raise CloseConnection if the response cannot carry one."""
        return at_once(self.fail_in_steps(call, error, waited_s))

    def fail_in_steps(
        self, call: Call, error: Exception, waited_s: float
    ) -> Steps[ResponseBuffers]:
        """Do what `fail` does, in steps: the response to a long request takes long to build."""
        ctx, route, request, started_s, size = call
        name = f"{route.api.name} v{route.version} of {client_text(ctx.header)}"
        if isinstance(error, CloseConnection):
            raise self.rejected("not_answerable", f"{name}: {error}") from None
        code, text = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, KafkaError):
            code, text = error.code, error.message
        else:
            self._log_fault(name, error)
        duration_s = perf_counter() - started_s
        self._metrics.request_failed(route.api.name, route.version, code, duration_s)
        if not route.api.is_answered(request):
            raise self.rejected("not_answerable", f"{name}, which expects no response: {code.name}")
        try:
            response = yield from error_steps(
                route.api.on_error, request, route.version, code, text
            )
        except NoErrorField:
            raise self.rejected("not_answerable", f"{name}: {code.name}") from None
        try:
            buffers: ResponseBuffers = None
            if size > LONG_BYTES:
                buffers = yield from encode_in_steps(ctx.header, route, response)
            else:
                buffers = encode(ctx.header, route, response)
        except EncodeError as encode_error:
            raise self.rejected("not_answerable", f"{name}: {code.name}, {encode_error}") from None
        if self._quotas.is_limiting:
            buffers = self._charge(call, duration_s - waited_s, buffers, response)
        return buffers

    def _charge(
        self,
        call: Call,
        used_s: float,
        buffers: ResponseBuffers,
        response: Struct | EncodedResponse | None,
    ) -> ResponseBuffers:
        """Charge the running time, and the bytes of a Produce or of the response to a Fetch.

        If the client is above its quota, the response is sent at once, with the time for which the
        client should wait if there is a field for it. For this time the connection reads and
        executes nothing, whatever the client does.

        Args:
            used_s: running time of the request, excluding waiting time.
            buffers: the encoded response, None for a request without one.
            response: if it has a throttle time already, the larger of both applies.
        """
        ctx, route, _, _, size = call
        assert isinstance(self._quotas, ClientQuotas), "no quota limits this client"
        header = ctx.header
        accounts = self._quotas.accounts(ctx.connection, header.client_id)
        throttle_ms = accounts.charge(header.api_key, size, used_s, self._now_s(), buffers)
        if header.api_key > FETCH_KEY:
            throttle_ms = max(throttle_ms, getattr(response, "throttle_time_ms", 0))
        if not throttle_ms:
            return buffers
        if isinstance(response, EncodedResponse):
            response, _ = route.response_codec.decode(response.body, 0)
        ctx.connection.throttle_ms = throttle_ms
        throttled: Any = route.api.throttled(response)
        if not hasattr(throttled, "throttle_time_ms"):
            return buffers
        throttled.throttle_time_ms = throttle_ms
        return encode(ctx.header, route, throttled)

    def _log_fault(self, name: str, error: Exception) -> None:
        """Log an internal error, rate-limited: a peer may cause it a thousand times a second."""
        if isinstance(error, EncodeError):
            # An EncodeError needs no traceback: its text says what this version cannot encode.
            self._log.fault("unwritable", "The response to %s cannot be encoded: %s", name, error)
        else:
            self._log.fault("fault", "Internal error in %s", name, error=error)

    def malformed(self, route: Route, header: RequestHeader, error: DecodeError) -> CloseConnection:
        """Return the exception for a request that cannot be decoded."""
        text = f"{route.api.name} v{route.version} of {client_text(header)}: {error}"
        return self.rejected("malformed_body", text)

    def rejected(self, reason: str, text: str) -> CloseConnection:
        """Count a request that gets no response; return the exception to raise."""
        self._metrics.request_rejected(reason)
        return CloseConnection(text)

    def log_extra_bytes(
        self, route: Route, header: RequestHeader, connection: ConnectionInfo, byte_count: int
    ) -> None:
        """Log bytes after a request at debug level; they are ignored, as in Kafka.

        They are an error in the client's encoder, or in our definition of the message. But every
        librdkafka up to 2.16 sends some when it requests Metadata of all topics (an array length in
        the format of versions before 9), and an operator could do nothing about it.
        """
        self._log.mention(
            "extra_bytes",
            "Ignored %d bytes after %s v%d of %s at %s (%s)",
            byte_count,
            route.api.name,
            route.version,
            client_text(header),
            connection.peer_host,
            connection.client_software,
        )


def interrupted() -> KafkaError:
    """Return the error of a request that the broker's stop interrupts: its effect is unknown."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "interrupted")


def encode(header: RequestHeader, route: Route, response: Struct | EncodedResponse) -> list[Buffer]:
    """Return the buffers of a response frame. Raises EncodeError."""
    if isinstance(response, EncodedResponse):
        has_tags = route.response_header_has_tags
        return [response_frame(header.correlation_id, response.body, header_has_tags=has_tags)]
    return response_buffers(
        header.correlation_id,
        route.response_codec,
        response,
        header_has_tags=route.response_header_has_tags,
    )


def encode_in_steps(header: RequestHeader, route: Route, response: Struct) -> Steps[list[Buffer]]:
    """Do what `encode` does in steps of bounded length."""
    return response_buffers_in_steps(
        header.correlation_id,
        route.response_codec,
        response,
        header_has_tags=route.response_header_has_tags,
    )


def client_text(header: RequestHeader) -> str:
    """Return the client id for the log, cut and quoted: clients may send 32 kB with line breaks."""
    return repr(header.client_id[:100] if header.client_id else header.client_id)
