"""Turns the result of a handler into the response: encodes it, charges the client's quotas, and
counts the request.

Whatever a handler raises becomes an error response. If the response has no field for the error, or
the client expects none, the connection is closed and the reason logged.
"""

import asyncio
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

from kohort.broker.core.security.account import FETCH_KEY, NO_ACCOUNTS
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import NoErrorField, error_steps
from kohort.broker.dispatch.registry import LONG_BYTES, Route
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import CloseConnection, ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.clock import Clock
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


class Charging:
    """Charges requests when their responses are ready.

    The response is sent at once and says how long the client should wait; the connection executes
    and reads nothing for that time, whatever the client does. Used only if some quota is set.
    """

    __slots__ = ("_now_s", "_quotas")

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._now_s = clock.monotonic_s

    def charge(
        self,
        ctx: RequestContext,
        size_bytes: int,
        used_s: float,
        buffers: ResponseBuffers,
        response: Struct | None,
    ) -> int:
        """Charge the running time, and the bytes of a Produce or of the response to a Fetch.

        Returns the milliseconds for which the client has to be throttled, 0 if it is within its
        quotas.

        Args:
            used_s: running time of the request, excluding waiting time.
            buffers: the encoded response, None for a request without one.
            response: if its handler has set a throttle time, the larger one is returned.
        """
        header, connection = ctx.header, ctx.connection
        client_id, key, now_s = header.client_id, header.api_key, self._now_s()
        accounts = (
            connection.accounts if connection.accounts_of is connection.session else NO_ACCOUNTS
        )
        if not accounts.belong_to(client_id):
            accounts = self._quotas.accounts(connection, client_id)
        throttle_ms = accounts.charge(key, size_bytes, used_s, now_s, buffers)
        if key > FETCH_KEY and response is not None:
            own_ms: int = getattr(response, "throttle_time_ms", 0)
            if own_ms > throttle_ms:
                return own_ms
        return throttle_ms


Call: TypeAlias = tuple[RequestContext, Route, Any, float, int]
"""A request being handled: context, route, request, start time on `perf_counter`, and its size in
bytes. Not a class, because one is made for every request."""


class Responder:
    """Responds to requests; shared by all connections."""

    def __init__(self, broker: BrokerServices, metrics: NetworkMetrics, log: PeerLog) -> None:
        self._quotas = broker.quotas or NoQuotas()
        if broker.quotas is not None:
            self._charging = Charging(broker.quotas, broker.clock)
        self._metrics = metrics
        self._log = log

    def respond(
        self, call: Call, response: Struct | None, waited_s: float = 0.0
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
        self, call: Call, response: Struct | None, buffers: ResponseBuffers, waited_s: float
    ) -> ResponseBuffers:
        """Charge and count a request whose response is encoded; return what to send."""
        _, route, _, started_s, _ = call
        duration_s = perf_counter() - started_s
        if self._quotas.is_limiting:
            buffers = self._charge(call, duration_s - waited_s, buffers, response)
        self._metrics.request_answered(route.api.name, route.version, response, duration_s)
        return buffers

    def respond_encoded(
        self, call: Call, response: EncodedResponse, waited_s: float = 0.0
    ) -> ResponseBuffers:
        ctx, route, _, started_s, _ = call
        has_tags = route.response_header_has_tags
        buffers: ResponseBuffers = [
            response_frame(ctx.header.correlation_id, response.body, header_has_tags=has_tags)
        ]
        duration_s = perf_counter() - started_s
        if self._quotas.is_limiting:
            buffers = self._charge(call, duration_s - waited_s, buffers, response)
        self._metrics.request_answered(route.api.name, route.version, None, duration_s)
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
        """Respond with a result; the handler had worked for `worked_s` before it waited."""
        waited_s = 0.0
        if self._quotas.is_limiting:
            # If limits have come into force meanwhile, the time before counts as waiting.
            ctx, _, _, started_s, _ = call
            waited_s = perf_counter() - started_s - worked_s - ctx.connection.worked_s
        try:
            response = result.result()
        except asyncio.CancelledError:
            return self.fail(call, interrupted(), waited_s)
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            return self.fail(call, error, waited_s)
        if response.__class__ is EncodedResponse:
            return self.respond_encoded(call, response, waited_s)
        return self.respond(call, response, waited_s)

    def fail(self, call: Call, error: Exception, waited_s: float = 0.0) -> ResponseBuffers:
        """Respond with the error, or raise CloseConnection if the response cannot carry one."""
        return at_once(self.fail_in_steps(call, error, waited_s))

    def fail_in_steps(
        self, call: Call, error: Exception, waited_s: float
    ) -> Steps[ResponseBuffers]:
        """Do what `fail` does; the response to a long request is built in many steps."""
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
        """Charge the client. If it is above its quota, throttle the connection once the response is
        written, and encode the response again with the throttle time, if it has a field for that.
        """
        ctx, route, _, _, size = call
        is_encoded = isinstance(response, EncodedResponse)
        struct: Any = None if is_encoded else response
        throttle_ms = self._charging.charge(ctx, size, used_s, buffers, struct)
        if not throttle_ms:
            return buffers
        if isinstance(response, EncodedResponse):
            struct, _ = route.response_codec.decode(response.body, 0)
        ctx.connection.throttle_ms = throttle_ms
        throttled: Any = route.api.throttled(struct)
        if not hasattr(throttled, "throttle_time_ms"):
            return buffers
        throttled.throttle_time_ms = throttle_ms
        return encode(ctx.header, route, throttled)

    def _log_fault(self, name: str, error: Exception) -> None:
        """Log an internal error, rate-limited: a peer may cause it a thousand times a second."""
        if isinstance(error, EncodeError):
            # The message says what cannot be encoded in this version.
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


def encode(header: RequestHeader, route: Route, response: Struct) -> list[Buffer]:
    """Return the buffers of a response frame. Raises EncodeError."""
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
    """Return the client id for the log: it may have 32 kB and contain line breaks."""
    return repr(header.client_id[:100] if header.client_id else header.client_id)
