"""What the dispatcher has requests charged for: the time of their handlers, not that of waiting."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.security.quotas import REQUEST, Entity, Quotas
from kohort.broker.core.security.session import Principal
from kohort.broker.dispatch import dispatcher as dispatchers
from kohort.broker.dispatch import long_requests, responses
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.registry import Api, Router
from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.service import ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.fair_lock import FairLock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.broker.security.rules import Disk
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.framing import encode_request
from kohort.protocol.messages.membership import HeartbeatRequest, HeartbeatResponse
from kohort.testing.virtual_clock import VirtualClock

FRAME = b"".join(
    encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 7, "c")[0]
)[4:]
BODY = codec(HeartbeatResponse, 4).encode(HeartbeatResponse(error_code=0))
PERCENT = 1.0
"""Allows 100 ms of work in the shortest time that is measured over."""


class Side:
    """A broker whose only handler works for so long, and then answers or waits."""

    def __init__(self, quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch) -> None:
        self.quotas = quotas
        self.connection = ConnectionInfo("/::1")
        self.work_s = 0.0
        self.returned: Any = None
        self.now_s = 5.0
        for module in (dispatchers, long_requests, responses):
            monkeypatch.setattr(module, "perf_counter", lambda: self.now_s)
        clock = VirtualClock()
        services = SimpleNamespace(
            quotas=quotas,
            clock=clock,
            tasks=set(),
            purgatory=Purgatory(report=lambda *_: None),
            long_requests=FairLock(),
        )
        api = Api(HeartbeatRequest, versions="0-4").handled_by(self._handle)
        self._dispatcher = Dispatcher(
            Router({api.key: api}),
            cast("BrokerServices", services),
            EdgeMetrics(),
            PeerLog(logging.getLogger("peers"), clock),
        )

    def _handle(self, ctx: RequestContext, request: object) -> Any:  # noqa: ANN401 - see above.
        del ctx, request
        self.now_s += self.work_s
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned

    def limit(self) -> None:
        self.quotas.quotas.set(Entity("ANONYMOUS"), {REQUEST: PERCENT})
        self.quotas.is_limiting = True

    def throttled_ms(self, returned: object, work_s: float) -> int:
        """How long a request is throttled that is answered at once."""
        self.returned, self.work_s = returned, work_s
        return self.told_ms(self._dispatcher.serve(self.connection, FRAME))

    def park(self, work_s: float) -> tuple[Deferred[Any], Deferred[ResponseBuffers]]:
        """Send a request that waits; return what it waits for, and its answer."""
        self.returned, self.work_s = Deferred[Any](), work_s
        answer = self._dispatcher.serve(self.connection, FRAME)
        assert isinstance(answer, Deferred)
        return self.returned, answer

    def told_ms(self, answer: object) -> int:
        """What an answer tells its client; the connection is to act on the same."""
        buffers: Any = answer.result() if isinstance(answer, Deferred) else answer
        told, _ = codec(HeartbeatResponse, 4).decode(b"".join(buffers), 9)
        held_ms, self.connection.throttle_ms = self.connection.throttle_ms, 0
        assert told.throttle_time_ms == held_ms
        return held_ms


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    store = MetadataStore(tmp_path, new_cluster_id="throttling")
    yield Side(ClientQuotas(Quotas(), store, cast("Disk", None)), monkeypatch)
    store.close()


def ok() -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0)


# Each makes an answer: one that is throttled is changed.
in_all_ways = pytest.mark.parametrize(
    "answer",
    [ok, lambda: EncodedResponse(BODY), lambda: KafkaError(ErrorCode.NOT_COORDINATOR)],
    ids=["encoded here", "encoded before", "an error"],
)


@in_all_ways
def test_the_time_of_a_handler_is_charged_whatever_it_answers(
    side: Side, answer: Callable[[], object]
) -> None:
    assert side.throttled_ms(answer(), 0.3) == 0
    side.limit()
    assert side.throttled_ms(answer(), 0.09) == 0
    assert side.throttled_ms(answer(), 0.02) == 1_000


@in_all_ways
def test_the_time_that_a_request_waits_is_not_charged(
    side: Side, answer: Callable[[], object]
) -> None:
    side.limit()
    for _ in range(2):
        later, parked = side.park(0.04)
        side.now_s += 100
        given = answer()
        if isinstance(given, Exception):
            later.set_exception(given)
        else:
            later.set_result(given)
        assert side.told_ms(parked) == 0
    assert side.throttled_ms(ok(), 0.03) == 1_000


def test_a_request_that_waits_while_limits_come_into_force_is_not_charged_for_time(
    side: Side,
) -> None:
    later, parked = side.park(0.5)
    side.limit()
    side.now_s += 100
    later.set_result(ok())
    assert side.told_ms(parked) == 0
    assert side.throttled_ms(ok(), 0.09) == 0


def test_a_request_that_waits_while_limits_end_is_answered(side: Side) -> None:
    side.limit()
    later, parked = side.park(0.5)
    side.quotas.quotas.set(Entity("ANONYMOUS"), {})
    side.quotas.is_limiting = False
    later.set_result(ok())
    assert side.told_ms(parked) == 0


def test_who_has_been_looked_up_is_not_looked_up_again(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    side.limit()
    assert side.throttled_ms(ok(), 0.01) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Quotas, "accounts", None)
        assert side.throttled_ms(ok(), 0.01) == 0
    side.limit()
    assert side.throttled_ms(ok(), 0.09) == 1_000


def test_who_comes_after_on_the_connection_is_charged_for_itself(side: Side) -> None:
    side.limit()
    side.quotas.quotas.set(Entity("someone else"), {REQUEST: PERCENT})
    assert side.throttled_ms(ok(), 0.09) == 0
    before = side.connection.session
    principal = Principal("User", "someone else")
    side.connection.session = before._replace(principal=principal)
    assert side.throttled_ms(ok(), 0.09) == 0
    side.connection.session = before
    assert side.throttled_ms(ok(), 0.02) == 1_000
