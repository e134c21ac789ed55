"""The registry of handlers: the decorator, and the table that it fills.

``@handles(HeartbeatRequest, versions="0-4")`` registers an API when its module is imported. The
advertised versions are already known before the import (:mod:`kohort.broker.handlers`). The import
compares them with those of the handler, so that every advertised version is supported.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, cast

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import OnError
from kohort.broker.dispatch.parts import Lists
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.steps import Steps
from kohort.protocol.codec import Codec, codec
from kohort.protocol.framing import API_VERSIONS_KEY
from kohort.protocol.message import RESPONSES, Message, schema_of
from kohort.protocol.schema import VersionRange

Reply: TypeAlias = Message | EncodedResponse | None
"""A response, or None if the request has none."""

LONG_BYTES: Final = 8 * 1024
"""Larger requests are decoded, executed and answered in slices. Smaller ones have at most a few
thousand elements, which take a few milliseconds."""

PART_MAX: Final = 200
"""Maximum elements in a part of a long request, if an element takes a few microseconds."""

Handler: TypeAlias = Callable[[RequestContext, Any], Reply | Deferred[Any] | Steps[Any]]
"""``(context, request) -> reply``, or a `Deferred` of it, or a generator of steps with that
result."""

AsyncHandler: TypeAlias = Callable[[RequestContext, Any], Coroutine[Any, Any, Reply]]

_Registered = TypeVar("_Registered", bound=Handler | AsyncHandler)


_BY_ITSELF: Final = OnError()


def _as_task(handler: AsyncHandler) -> Handler:
    @wraps(handler)
    def start(ctx: RequestContext, request: object) -> Deferred[Any]:
        return ctx.run(handler(ctx, request), name=handler.__name__)

    return start


_apis: "Final[dict[int, Api]]" = {}


class Api:
    """An API and its handler. Under the name `handles`, the class decorates handlers.

    A handler that never waits is a plain ``def``, and runs without a task. A coroutine function
    runs as a task, which returns the response. A handler with much work may return a generator of
    steps (:mod:`kohort.groups.steps`), which are run in slices.
    """

    __slots__ = (
        "advertised",
        "handler",
        "is_answered",
        "is_task",
        "key",
        "long_bytes",
        "name",
        "on_error",
        "part_max",
        "parts",
        "prepare",
        "request",
        "throttled",
        "versions",
    )

    def __init__(
        self,
        request: type,
        *,
        versions: str,
        advertised: str | None = None,
        on_error: OnError = _BY_ITSELF,
        is_answered: Callable[[Any], bool] = lambda _: True,
        throttled: Callable[[Any], Any] = lambda response: response,
        parts: Sequence[Lists] = (),
        prepare: Callable[[RequestContext, Any], None] = lambda *_: None,
        part_max: int = PART_MAX,
        long_bytes: int = LONG_BYTES,
    ) -> None:
        """``versions`` are those of the handler, as in "0-4". ``on_error`` is for responses without
        a top-level error, ``is_answered`` for requests that may expect no response, ``throttled``
        for those with a different response if the client exceeds a quota.

        A request of more than ``long_bytes`` is passed to the handler in parts of at most
        ``part_max`` elements. ``parts`` names the lists that are split; the first entry that the
        version has is used. The elements must not depend on each other, because each part fails by
        itself, and each must be answered by one element, in the same order. ``prepare`` is called
        with the whole request first: it merges, removes or rejects repetitions if they matter.
        """
        schema = schema_of(request)
        assert schema.key is not None, f"{schema.name} is not a request"
        self.key = schema.key
        self.name = schema.name.removesuffix("Request")
        self.request = request
        self.handler: Handler
        self.is_task = False
        self.on_error = on_error
        self.is_answered = is_answered
        """Whether the client expects a response to this request."""
        self.prepare = prepare
        """Called with a long request before it is split; may change it, or raise KafkaError."""
        self.throttled = throttled
        """Returns the response that a throttled client gets in place of the normal response."""
        self.parts = parts
        self.part_max = part_max
        self.long_bytes = long_bytes
        self.versions = VersionRange.parse(versions)
        self.advertised = VersionRange.parse(advertised or versions)
        """Versions listed by ApiVersions; for Produce, they include some that are not served."""
        assert self.versions.low in schema.versions, f"{self.name} has no v{self.versions.low}"
        assert self.versions.high in schema.versions, f"{self.name} has no v{self.versions.high}"

    def handled_by(self, handler: Handler | AsyncHandler) -> Self:
        """Set the handler; return this API."""
        self.is_task = iscoroutinefunction(handler)
        if self.is_task:
            self.handler = _as_task(cast("AsyncHandler", handler))
        else:
            self.handler = cast("Handler", handler)
        return self

    def __call__(self, handler: _Registered) -> _Registered:
        assert self.key not in _apis, f"{self.name} has two handlers"
        _apis[self.key] = self.handled_by(handler)
        return handler


handles: Final = Api


class Route:
    """How requests of one version of an API are decoded, handled and answered."""

    __slots__ = (
        "api",
        "decode",
        "handler",
        "lists",
        "long_bytes",
        "request_codec",
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
        self.request_codec: Codec[Any] = codec(api.request, version)
        self.decode = self.request_codec.decode
        self.response = RESPONSES[api.key]
        self.long_bytes = api.long_bytes
        self.lists = next(
            (
                lists
                for lists in api.parts
                if has_field(api.request, lists.request[0], version)
                and has_field(self.response, lists.response[0], version)
            ),
            None,
        )
        """Lists by which long requests are split; None if the API or the version has none."""
        self.response_codec: Codec[Any] = codec(self.response, version)
        self.request_header_has_tags = flexible
        self.response_header_has_tags = flexible and api.key != API_VERSIONS_KEY


def has_field(message: type, name: str, version: int) -> bool:
    """Whether the message has the field in this version."""
    return any(
        field.name == name and version in field.versions for field in schema_of(message).fields
    )


def registered(key: int) -> Api | None:
    """Return an API whose handler has been imported; see `kohort.broker.handlers.Handlers`."""
    return _apis.get(key)


class Loading(Protocol):
    """Loads APIs on another thread, before their first request is routed."""

    def is_needed(self, key: int) -> bool:
        """Whether a request for this API must await `wait_loaded` first."""
        ...

    async def wait_loaded(self, key: int) -> None: ...


class Router:
    """Finds the route of a request; routes are created on first use and cached."""

    def __init__(
        self,
        apis: Mapping[int, Api],
        loading: Loading | None = None,
    ) -> None:
        """Without `loading`, looking up an API in `apis` imports its handler."""
        self.apis = apis
        self.loading = loading
        self.routes: dict[tuple[int, int], Route] = {}
        """The routes created so far, by key and version; the dispatcher looks here first."""
        self._handler_of: Callable[[Api], Handler] | None = None

    def intercept(self, handler_of: Callable[[Api], Handler] | None) -> None:
        """Handle requests from now on with the handlers that `handler_of` returns for their APIs;
        None restores the APIs' own handlers.

        The only place where tests can intercept requests. Routes store their handler, so a broker
        without interception pays nothing.
        """
        self._handler_of = handler_of
        for route in self.routes.values():
            route.handler = route.api.handler if handler_of is None else handler_of(route.api)

    def find(self, api_key: int, version: int) -> Route | None:
        """Return the route of a request, or None if the API or version is not supported."""
        route = self.routes.get((api_key, version))
        if route is None:
            api = self.apis.get(api_key)
            if api is None or version not in api.versions:
                return None
            route = self.routes[api_key, version] = Route(api, version)
            if self._handler_of is not None:
                route.handler = self._handler_of(api)
        return route
