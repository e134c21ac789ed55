"""Faults between a request and its handler: requests are dropped, delayed, rejected, disconnected
or observed.

They are installed at the broker's single hook, `Router.intercept`, which costs nothing without
faults. A request is matched against the faults of its API in the order in which they were set. The
first match decides; if it only observes, delays or holds the request, the next match applies too.
"""

import asyncio
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import GeneratorType
from typing import Any, Final, TypedDict

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import elements_response
from kohort.broker.dispatch.registry import Api, Handler, Router
from kohort.broker.handlers import load_handlers
from kohort.broker.handlers.find_coordinator import GROUP
from kohort.broker.network.service import CloseConnection
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.steps import at_once
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.fetch import FetchRequest
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from kohort.protocol.types import ZERO_UUID
from kohort.testing.kit.polling import LONG_S, wait_until

SESSION_ERRORS: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)
"""Errors that a Fetch response has at its top level; all others are errors of a partition."""

EVERY: Final = "*"
"""An API name that matches all APIs."""

When = Callable[[Any], bool]


class FaultParts(TypedDict, total=False):
    """The keyword arguments of `Kafka.fault`, which documents them."""

    client_id: str | None
    group: str | None
    topic: str | None
    when: When | None
    drop: bool
    delay_ms: int
    error: str | None
    disconnect: bool
    observe: bool
    times: int | None


@dataclass(kw_only=True, eq=False)
class Fault:
    """One fault; `Kafka.fault` documents the fields."""

    api: str
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    when: When | None = None
    drop: bool = False
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.NONE
    disconnect: bool = False
    observe: bool = False
    times: int | None = None
    hold: bool = False
    """Whether requests wait until the fault ends, and then continue."""
    hits: int = 0
    """Number of requests affected or observed."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_unused: bool = False
    """Whether the fault was created, but never installed by `with`."""

    def __del__(self) -> None:
        """Warn if the fault was never applied, as Python does for a coroutine that is never
        awaited: such a test passes for the wrong reason.
        """
        if self.is_unused:
            text = f"a fault of {self.api} was never entered, so it applied to nothing: use `with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def takes(self, ctx: RequestContext, request: object) -> bool:
        """Return whether the fault applies to this request; if so, count it."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.client_id is not None and ctx.header.client_id != self.client_id:
            return False
        if self.group is not None and self.group not in groups_of(request):
            return False
        if self.topic is not None and self.topic not in topics_of(ctx, request):
            return False
        if self.when is not None and not self.when(request):
            return False
        self.hits += 1
        return True

    async def wait(
        self,
        hits: int = 1,
        *,
        timeout: float = LONG_S,  # noqa: ASYNC109 - its TimeoutError describes the state.
    ) -> None:
        """Wait for this many hits. Raises TimeoutError with the actual number."""
        if not await wait_until(lambda: self.hits >= hits, timeout):
            raise TimeoutError(f"{self.hits} of {hits} {self.api} requests within {timeout:g} s")


class Faults:
    """The faults of one broker; they stay in force when it is restarted."""

    def __init__(self) -> None:
        self._all: list[Fault] = []
        self._dropped: list[Deferred[Any]] = []
        self._router: Router | None = None
        self.on_request: Callable[[RequestContext, Api], None] | None = None
        """Called for every request. Set before the broker starts."""

    def attach(self, router: Router) -> None:
        """Install the faults in the router of a newly started broker."""
        self._router = router
        self._intercept()

    def detach(self) -> None:
        """Release dropped requests: otherwise the stopping broker would wait for them."""
        self._router = None
        dropped, self._dropped = self._dropped, []
        for response in dropped:
            response.cancel()

    @contextmanager
    def applied(self, fault: Fault) -> Iterator[Fault]:
        """A context in which the fault applies."""
        self.add(fault)
        try:
            yield fault
        finally:
            self.remove(fault)

    def add(self, fault: Fault) -> None:
        fault.is_unused = False
        self._all.append(fault)
        self._intercept()

    def remove(self, fault: Fault) -> None:
        """Remove a fault: held requests continue, dropped requests stay unanswered."""
        fault.ended.set()
        self._all.remove(fault)
        self._intercept()

    def _intercept(self) -> None:
        if self._router is not None:
            is_any = bool(self._all) or self.on_request is not None
            self._router.intercept(self._handler_of if is_any else None)

    def _handler_of(self, api: Api) -> Handler:
        faults = [fault for fault in self._all if fault.api in {api.name, EVERY}]
        if not faults and self.on_request is None:
            return api.handler

        def handle(ctx: RequestContext, request: Any) -> Any:  # noqa: ANN401 - as handlers do.
            if self.on_request is not None:
                self.on_request(ctx, api)
            return self._handle(api, ctx, request, iter(faults))

        return handle

    def _handle(
        self,
        api: Api,
        ctx: RequestContext,
        request: Any,  # noqa: ANN401 - any request, any answer.
        faults: Iterator[Fault],
    ) -> Any:  # noqa: ANN401 - as above.
        for fault in faults:
            if not fault.takes(ctx, request) or fault.observe:
                continue
            if fault.delay_ms or fault.hold:
                work = self._late(fault, api, ctx, request, faults)
                return Deferred.from_coroutine(work, ctx.broker.tasks, name=f"late {api.name}")
            return self._act(fault, api, ctx, request, faults)
        return api.handler(ctx, request)

    async def _late(
        self,
        fault: Fault,
        api: Api,
        ctx: RequestContext,
        request: Any,  # noqa: ANN401 - as above.
        faults: Iterator[Fault],
    ) -> Any:  # noqa: ANN401 - as above.
        if fault.hold:
            await fault.ended.wait()
        await asyncio.sleep(fault.delay_ms / 1_000)
        returned = self._act(fault, api, ctx, request, faults)
        if isinstance(returned, GeneratorType):
            returned = at_once(returned)
        return await returned if isinstance(returned, Deferred) else returned

    def _act(
        self,
        fault: Fault,
        api: Api,
        ctx: RequestContext,
        request: Any,  # noqa: ANN401 - as above.
        faults: Iterator[Fault],
    ) -> Any:  # noqa: ANN401 - as above.
        if fault.disconnect:
            raise CloseConnection("a fault of the test")
        if fault.error:
            return _refuse(api, ctx, request, fault.error)
        if not fault.drop:
            return self._handle(api, ctx, request, faults)
        if not api.is_answered(request):
            return None
        never: Deferred[Any] = Deferred()
        self._dropped = [response for response in self._dropped if not response.is_done]
        self._dropped.append(never)
        return never


def _refuse(api: Api, ctx: RequestContext, request: object, code: ErrorCode) -> object:
    if isinstance(request, FetchRequest) and code not in SESSION_ERRORS:
        return elements_response(api.on_error, request, ctx.api_version, code)
    if isinstance(request, MetadataRequest):
        return _refuse_topics(api, ctx, request, code)
    raise KafkaError(code)


def _refuse_topics(
    api: Api, ctx: RequestContext, request: MetadataRequest, code: ErrorCode
) -> object:
    """Return a response with the error for each requested topic, and with the broker's address."""
    answer: Any = MetadataResponse(brokers=[], topics=[])
    if request.topics is not None:
        answer = elements_response(api.on_error, request, ctx.api_version, code)
    host, port = ctx.advertised
    node_id = ctx.broker.node_id
    answer.brokers = [MetadataResponseBroker(node_id=node_id, host=host, port=port)]
    answer.controller_id, answer.cluster_id = node_id, ctx.broker.cluster_id
    return answer


def new_fault(api: str, parts: FaultParts, *, hold: bool = False) -> Fault:
    """Create a fault that is not active yet.

    Raises:
        ValueError: the arguments are contradictory or invalid.
        TypeError: an argument is unknown.
    """
    names = {known.name for known in load_handlers().values()}
    if api not in {EVERY, *names}:
        raise ValueError(f"there is no request {api!r}; there are {', '.join(sorted(names))}")
    for part in parts:
        if part not in FaultParts.__annotations__:
            raise TypeError(
                f"a fault has no {part}; it has {', '.join(FaultParts.__annotations__)}"
            )
    others: dict[str, Any] = {**parts}
    error = others.pop("error", None)
    try:
        code = ErrorCode.NONE if error is None else ErrorCode[error]
    except KeyError:
        raise ValueError(f"there is no error {error!r}{_similar(str(error))}") from None
    fault = Fault(api=api, error=code, hold=hold, **others)
    ends = [fault.drop, fault.disconnect, bool(code), fault.observe]
    if sum(ends) > 1:
        raise ValueError("only one of drop, error, disconnect and observe")
    if not any(ends) and not fault.delay_ms and not fault.hold:
        raise ValueError("a fault needs one of drop, delay_ms, error, disconnect and observe")
    fault.is_unused = True
    return fault


def _similar(error: str) -> str:
    """Suggest similar names of errors: client libraries rename Kafka's errors only slightly."""
    names = get_close_matches(error.upper(), ErrorCode.__members__, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def groups_of(request: object) -> set[str]:
    names: set[object] = {getattr(request, "group_id", None)}
    if getattr(request, "key_type", 0) == GROUP:
        # Only then are the keys of a FindCoordinator request group ids.
        names |= {getattr(request, "key", None), *getattr(request, "coordinator_keys", ())}
    for name in ("groups", "groups_names"):
        for entry in getattr(request, name, None) or ():
            names.add(entry if isinstance(entry, str) else getattr(entry, "group_id", None))
    return set(_strings(names))


def topics_of(ctx: RequestContext, request: object) -> set[str]:
    names: set[str] = set()
    pending = [request]
    while pending:
        parent = pending.pop()
        for name in ("topics", "topic_data", "groups", "transactions"):
            for entry in getattr(parent, name, None) or ():
                if isinstance(entry, str):
                    if name == "topics":
                        names.add(entry)
                    continue
                pending.append(entry)
                if name in {"topics", "topic_data"}:
                    names.update(_topic_names(ctx, entry))
    return names


def _topic_names(ctx: RequestContext, entry: object) -> Iterator[str]:
    yield from _strings((getattr(entry, "name", None), getattr(entry, "topic", None)))
    topic_id = getattr(entry, "topic_id", None)
    if topic_id is not None and bytes(topic_id) != ZERO_UUID:
        topic = ctx.broker.topics.get_by_id(bytes(topic_id))
        if topic is not None:
            yield topic.name


def _strings(values: Iterable[object]) -> Iterator[str]:
    return (text for text in values if isinstance(text, str) and text)
