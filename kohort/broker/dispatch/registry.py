"""Which function answers which request: the decorator, and the table made from it.

``@handles(HeartbeatRequest, versions="0-4")`` is the whole registration of an API: dispatch and the
answer to ApiVersions both come from it, so that what we advertise is what we serve.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, wraps
from inspect import iscoroutinefunction
from typing import Any, Final

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError
from kohort.broker.runtime.later import Later
from kohort.protocol.codec import Codec, codec
from kohort.protocol.framing import API_VERSIONS_KEY
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.schema import VersionRange

Handler = Callable[[RequestContext, Any], Any]
"""``(context, request) -> answer``: a response, an `EncodedResponse`, None where the request has no
answer, or a `Later` of one of these."""


def _always(request: object) -> bool:
    del request
    return True


_BY_ITSELF: Final = OnError()


def _as_task(handler: Callable[[RequestContext, Any], Coroutine[Any, Any, Any]]) -> Handler:
    @wraps(handler)
    def start(ctx: RequestContext, request: object) -> Later[Any]:
        return Later.of(handler(ctx, request), ctx.broker.tasks, name=handler.__name__)

    return start


class Api:
    """One api that this broker serves."""

    __slots__ = (
        "advertised",
        "handler",
        "is_answered",
        "key",
        "name",
        "on_error",
        "request",
        "versions",
    )

    def __init__(
        self,
        request: type,
        handler: Handler,
        *,
        versions: str,
        advertised: str | None = None,
        on_error: OnError = _BY_ITSELF,
        is_answered: Callable[[Any], bool] = _always,
    ) -> None:
        schema = schema_of(request)
        assert schema.key is not None, f"{schema.name} is not a request"
        self.key = schema.key
        self.name = schema.name.removesuffix("Request")
        self.request = request
        self.handler = _as_task(handler) if iscoroutinefunction(handler) else handler
        self.on_error = on_error
        self.is_answered = is_answered
        """Whether the client waits for a response to this request."""
        self.versions = VersionRange.parse(versions)
        """Versions that are answered."""
        self.advertised = VersionRange.parse(advertised or versions)
        """Versions that ApiVersions lists; wider than ``versions`` only for old feature checks."""
        assert self.versions.low in schema.versions, f"{self.name} has no v{self.versions.low}"
        assert self.versions.high in schema.versions, f"{self.name} has no v{self.versions.high}"


class Route:
    """How requests of one (api, version) are read, answered and written."""

    __slots__ = (
        "api",
        "decode",
        "handler",
        "request_header_has_tags",
        "response",
        "response_codec",
        "response_header_has_tags",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        flexible = schema_of(api.request).is_flexible(version)
        self.api = api
        self.version = version
        self.handler = api.handler
        request_codec: Codec[Any] = codec(api.request, version)
        self.decode = request_codec.decode
        self.response = RESPONSES[api.key]
        self.response_codec: Codec[Any] = codec(self.response, version)
        self.request_header_has_tags = flexible
        self.response_header_has_tags = flexible and api.key != API_VERSIONS_KEY


_apis: Final[dict[int, Api]] = {}


def handles(
    request: type,
    *,
    versions: str,
    advertised: str | None = None,
    on_error: OnError = _BY_ITSELF,
    is_answered: Callable[[Any], bool] = _always,
) -> Callable[[Callable[[RequestContext, Any], Any]], Callable[[RequestContext, Any], Any]]:
    """Register a function as the handler of ``request`` in ``versions`` ("0-4").

    ``on_error`` is for responses without an error of their own, ``is_answered`` for requests that
    may say that the client waits for no response.

    A handler that never waits is a plain ``def`` and is answered without a task. A coroutine runs
    as a task, and is answered with what it returns.
    """

    def register(handler: Handler) -> Handler:
        api = Api(
            request,
            handler,
            versions=versions,
            advertised=advertised,
            on_error=on_error,
            is_answered=is_answered,
        )
        assert api.key not in _apis, f"{api.name} has two handlers"
        _apis[api.key] = api
        return handler

    return register


def load_handlers() -> dict[int, Api]:
    """Import every handler module beside this one and return the apis by key, in key order."""
    _import_handlers()
    return dict(sorted(_apis.items()))


@cache
def _import_handlers() -> None:
    """Once in a process: to look for the files takes a fifth of the start of a broker in memory."""
    package = importlib.import_module("kohort.broker.handlers")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"kohort.broker.handlers.{module.name}")


class Router:
    """Finds the route of a request; routes are made on first use and kept."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self.apis = apis
        self._routes: dict[tuple[int, int], Route] = {}
        self._handler_of: Callable[[Api], Handler] | None = None

    def intercept(self, handler_of: Callable[[Api], Handler] | None) -> None:
        """Have requests handled by what `handler_of` returns for their api, from now on; None for
        the apis' own handlers.

        The one place where tests come between a request and its handler. Routes have their handler
        at hand, so a broker that nothing is put into does not ask.
        """
        self._handler_of = handler_of
        for route in self._routes.values():
            route.handler = route.api.handler if handler_of is None else handler_of(route.api)

    def find(self, api_key: int, version: int) -> Route | None:
        """The route of a request, or None for an api or version that is not served."""
        route = self._routes.get((api_key, version))
        if route is None:
            api = self.apis.get(api_key)
            if api is None or version not in api.versions:
                return None
            route = self._routes[api_key, version] = Route(api, version)
            if self._handler_of is not None:
                route.handler = self._handler_of(api)
        return route
