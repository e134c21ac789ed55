"""Executes long requests in time slices, over several event loop iterations.

The first slice of a request runs at once. Later slices, and all slices of a request of many bytes,
run under one lock, so that an iteration has at most one slice. The lock is granted round robin by
client: a client with a thousand connections delays the request of another client by only one of its
own requests. Executing one request at a time also bounds memory: a request with many small elements
takes thirty times its bytes when it is decoded.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from types import GeneratorType
from typing import Any, Final, TypeVar

from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import error_response
from kohort.broker.dispatch.parts import join, parts_of
from kohort.broker.dispatch.registry import Route
from kohort.broker.dispatch.responses import Call, Responder, encode_in_steps, interrupted
from kohort.broker.network.service import ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.groups.steps import Steps
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import DecodeError, EncodeError, KafkaError
from kohort.protocol.framing import skip_header_tags

T = TypeVar("T")

_UNFINISHED: Final = object()
"""Returned in place of a result if there are more steps."""


async def run_in_slices(ctx: RequestContext, steps: Steps[T]) -> T:
    """Run a request's steps: the first slice at once, later slices while no other long request
    runs.
    """
    result = _run_slice(ctx, steps)
    if result is _UNFINISHED:
        async with ctx.broker.long_requests.held_by(_client_key(ctx)):
            return await run(steps, Slice(ctx.broker.clock))
    finished: T = result
    return finished


def _run_slice(ctx: RequestContext, steps: Steps[Any]) -> Any:  # noqa: ANN401 - the steps' result.
    time_slice = Slice(ctx.broker.clock)
    try:
        while not time_slice.is_over():
            next(steps)
    except StopIteration as stop:
        return stop.value
    return _UNFINISHED


def _client_key(ctx: RequestContext) -> tuple[str, str]:
    """Return a key shared by all connections of one client."""
    return ctx.session.principal.name, ctx.connection.peer_host


class LongRequests:
    """Executes the long requests of all clients, for the dispatcher."""

    def __init__(self, broker: BrokerServices, responder: Responder) -> None:
        self._lock = broker.long_requests
        self._clock = broker.clock
        self._responder = responder

    def serve(
        self, ctx: RequestContext, frame: Buffer, route: Route, position: int, started_s: float
    ) -> Deferred[ResponseBuffers]:
        """Execute a long request in a task; if the client disconnects, the request's remaining
        parts are skipped.
        """
        work = self._serve(ctx, frame, route, position, started_s)
        return self._run(ctx, work, route, started_s)

    def begin(self, call: Call, steps: Steps[Any]) -> ResponseBuffers | Deferred[ResponseBuffers]:
        """Run a handler's steps for one slice; if steps are left, continue in a task."""
        try:
            result = _run_slice(call[0], steps)
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            return self._responder.fail(call, error)
        if result is _UNFINISHED:
            return self._run_call(call, self._continue(call, steps))
        if isinstance(result, Deferred):
            return self._responder.respond_later(call, result)
        return self._responder.respond(call, result)

    def finish(self, call: Call, result: Deferred[Any]) -> Deferred[ResponseBuffers]:
        """Wait for the result of a handler that runs as a task, and encode it in slices."""
        return self._run_call(call, self._respond(call, result))

    def fail(self, call: Call, error: Exception) -> Deferred[ResponseBuffers]:
        return self._run_call(call, self._fail(call, error))

    def _run_call(
        self, call: Call, work: Coroutine[Any, Any, ResponseBuffers]
    ) -> Deferred[ResponseBuffers]:
        ctx, route, _, started_s, _ = call
        return self._run(ctx, work, route, started_s, call)

    def _run(
        self,
        ctx: RequestContext,
        work: Coroutine[Any, Any, ResponseBuffers],
        route: Route,
        started_s: float,
        call: Call | None = None,
    ) -> Deferred[ResponseBuffers]:
        """Run a coroutine that serves a request; `call` is None if the request is not decoded
        yet.
        """
        ctx.connection.worked_s = perf_counter() - started_s
        return ctx.run(work, name=route.api.name).finally_(partial(self._end, call))

    def _end(self, call: Call | None, response: Deferred[ResponseBuffers]) -> ResponseBuffers:
        try:
            return response.result()
        except asyncio.CancelledError:
            if call is None:
                raise self._responder.rejected("not_answerable", "interrupted") from None
            return self._responder.fail(call, interrupted())

    async def _serve(
        self, ctx: RequestContext, frame: Buffer, route: Route, position: int, started_s: float
    ) -> ResponseBuffers:
        responder = self._responder
        async with self._lock.held_by(_client_key(ctx)):
            time_slice = Slice(self._clock)
            try:
                if route.request_header_has_tags:
                    position = skip_header_tags(frame, position)
                decoding = route.request_codec.decode_in_steps(frame, position)
                request, end = await run(decoding, time_slice)
            except DecodeError as error:
                raise responder.malformed(route, ctx.header, error) from None
            size = len(frame)
            if end != size:
                responder.log_extra_bytes(route, ctx.header, ctx.connection, size - end)
            call = (ctx, route, request, started_s, size)
            try:
                result = await _handle_parts(ctx, route, request, time_slice)
                if isinstance(result, GeneratorType):
                    result = await run(result, time_slice)
            except Exception as error:  # noqa: BLE001 - every error gets a response.
                steps = responder.fail_in_steps(call, error, _waited_s(call))
                return await run(steps, time_slice)
        return await self._respond(call, result)

    async def _continue(self, call: Call, steps: Steps[Any]) -> ResponseBuffers:
        try:
            async with self._lock.held_by(_client_key(call[0])):
                result = await run(steps, Slice(self._clock))
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            return await self._fail(call, error)
        return await self._respond(call, result)

    async def _respond(self, call: Call, result: Any) -> ResponseBuffers:  # noqa: ANN401
        """Wait for the response if necessary, and encode it in slices."""
        responder = self._responder
        try:
            response = await result if isinstance(result, Deferred) else result
        except Exception as error:  # noqa: BLE001 - every error gets a response.
            return await self._fail(call, error)
        if response is None or isinstance(response, EncodedResponse):
            return responder.respond(call, response, _waited_s(call))
        ctx, route, _, _, _ = call
        try:
            buffers = await run_in_slices(ctx, encode_in_steps(ctx.header, route, response))
        except EncodeError as error:
            return responder.fail(call, error, _waited_s(call))
        return responder.account(call, response, buffers, _waited_s(call))

    async def _fail(self, call: Call, error: Exception) -> ResponseBuffers:
        steps = self._responder.fail_in_steps(call, error, _waited_s(call))
        return await run_in_slices(call[0], steps)


def _waited_s(call: Call) -> float:
    """Return the time since the start of a request during which none of its code was running."""
    ctx, _, _, started_s, _ = call
    return perf_counter() - started_s - ctx.connection.worked_s


async def _handle_parts(
    ctx: RequestContext,
    route: Route,
    request: Any,  # noqa: ANN401
    time_slice: Slice,
) -> Any:  # noqa: ANN401
    """Call the handler with each part of the request; return the joined responses. If the
    API's requests cannot be split, the handler gets the whole request.
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
                response = await run(response, time_slice)
            if isinstance(response, Deferred):
                # The lock of long requests stays held during this wait, which may last
                # offsets.commit.timeout.ms, so that only one such request is decoded in memory.
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
        await time_slice.pause()
    return whole
