"""Decodes requests, calls their handlers, and sends the handlers' results as responses.

If a handler raises, the request is answered with an error. If the response has no field for an
error, or the request is invalid, the connection is closed and the reason logged.
"""

import asyncio
from time import perf_counter
from types import GeneratorType
from typing import Any

from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import refusal, unsupported_version
from kohort.broker.dispatch.long_requests import LongRequests
from kohort.broker.dispatch.registry import LONG_BYTES, Loading, Router
from kohort.broker.dispatch.responses import Call, Responder, client_text, encode
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import CloseConnection, ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.codec import Buffer, codec
from kohort.protocol.errors import DecodeError, EncodeError, ErrorCode
from kohort.protocol.framing import (
    API_VERSIONS_KEY,
    RequestHeader,
    read_request_prefix,
    response_buffers,
    skip_header_tags,
)
from kohort.protocol.messages.api_versions import ApiVersionsResponse


class Dispatcher:
    def __init__(
        self, router: Router, broker: BrokerServices, metrics: NetworkMetrics, log: PeerLog
    ) -> None:
        self._router = router
        self._routes = router.routes
        self._broker = broker
        self._metrics = metrics
        self._responder = Responder(broker, metrics, log)
        self._respond = self._responder.respond
        """A copy of the method, because looking it up costs time for every request."""
        self._long_requests = LongRequests(broker, self._responder)

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        # Calls are inlined where possible, because this code runs for every request.
        started_s = perf_counter()
        responder = self._responder
        try:
            header, position = read_request_prefix(frame)
        except DecodeError as error:
            raise responder.rejected("malformed_header", str(error)) from None
        key, version = header.api_key, header.api_version
        route = self._routes.get((key, version))
        if route is None:
            return self._serve_first(header, connection, frame)
        size = len(frame)
        if size > route.long_bytes:
            ctx = RequestContext(header, connection, self._broker, is_long=True)
            return self._long_requests.serve(ctx, frame, route, position, started_s)
        try:
            if route.request_header_has_tags:
                position = skip_header_tags(frame, position)
            request, end = route.decode(frame, position)
        except DecodeError as error:
            raise responder.malformed(route, header, error) from None
        if end != size:
            responder.log_extra_bytes(route, header, connection, size - end)
        ctx = RequestContext(header, connection, self._broker)
        call = (ctx, route, request, started_s, size)
        try:
            result: Any = route.handler(ctx, request)
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            is_long = size > LONG_BYTES
            return self._long_requests.fail(call, error) if is_long else responder.fail(call, error)
        kind = result.__class__
        if result is None or kind is route.response or kind is EncodedResponse:
            return self._respond(call, result)
        return self._continue(call, result)

    def _serve_first(
        self, header: RequestHeader, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        """Serve a request without a cached route: the first of its API and version, or a request
        of an unsupported version.
        """
        loading = self._router.loading
        if loading is not None and loading.is_needed(header.api_key):
            work = self._serve_when_loaded(loading, header.api_key, connection, frame)
            serving = Deferred.from_coroutine(work, self._broker.tasks, name="load a handler")
            return serving.finally_(self._end_first)
        if self._router.find(header.api_key, header.api_version) is None:
            return self._respond_unsupported(header)
        return self.serve(connection, frame)

    def _end_first(self, response: Deferred[ResponseBuffers]) -> ResponseBuffers:
        try:
            return response.result()
        except asyncio.CancelledError:
            raise self._responder.rejected("not_answerable", "interrupted") from None

    async def _serve_when_loaded(
        self, loading: Loading, key: int, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers:
        await loading.wait_loaded(key)
        response = self.serve(connection, frame)
        return await response if isinstance(response, Deferred) else response

    def _continue(self, call: Call, result: Any) -> ResponseBuffers | Deferred[ResponseBuffers]:  # noqa: ANN401
        """Serve a request whose handler returned a generator or a `Deferred` of the response."""
        if isinstance(result, GeneratorType):
            return self._long_requests.begin(call, result)
        api = call[1].api
        assert isinstance(result, Deferred), f"{api.name} returned {type(result).__name__}"
        if api.is_task:
            return self._long_requests.finish(call, result)
        return self._responder.respond_later(call, result)

    def refuse(self, frame: Buffer, code: ErrorCode) -> ResponseBuffers:
        """Return the error response to a request received before authentication; None if it
        expects no response. Raises CloseConnection if no response can carry the error.
        """
        started_s = perf_counter()
        responder = self._responder
        try:
            header, position = read_request_prefix(frame)
            route = self._router.find(header.api_key, header.api_version)
            if route is None:
                raise self._unsupported(header)
            if route.request_header_has_tags:
                position = skip_header_tags(frame, position)
            request, _ = route.decode(frame, position)
        except DecodeError as error:
            text = f"malformed before authentication: {error}"
            raise responder.rejected("malformed_body", text) from None
        name, duration_s = route.api.name, perf_counter() - started_s
        self._metrics.request_failed(name, route.version, code, duration_s)
        if not route.api.is_answered(request):
            return None
        try:
            return encode(header, route, refusal(route.api.on_error, request, route.version, code))
        except EncodeError as error:
            text = f"{name}: {code.name}, {error}"
            raise responder.rejected("not_answerable", text) from None

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self._broker.purgatory.cancel_owner(connection)
        if connection.opened_share_session:
            self._broker.share_delivery.connection_lost(connection)

    async def close(self) -> None:
        """Cancel the handlers that are still running and wait until they have ended."""
        tasks = list(self._broker.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _respond_unsupported(self, header: RequestHeader) -> ResponseBuffers:
        """Respond to ApiVersions of an unsupported version in v0, which all clients understand."""
        if header.api_key != API_VERSIONS_KEY:
            raise self._unsupported(header)
        response = unsupported_version(self._router.apis[API_VERSIONS_KEY].advertised)
        self._metrics.request_answered("ApiVersions", 0, response, 0.0)
        v0 = codec(ApiVersionsResponse, 0)
        return response_buffers(header.correlation_id, v0, response, header_has_tags=False)

    def _unsupported(self, header: RequestHeader) -> CloseConnection:
        is_known = header.api_key in self._router.apis
        reason = "unsupported_version" if is_known else "unknown_api"
        text = f"api {header.api_key} v{header.api_version} of {client_text(header)}"
        return self._responder.rejected(reason, f"{text} is not supported")
