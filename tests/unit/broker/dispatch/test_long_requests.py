"""Long requests are executed in slices, one at a time, with other requests in between."""

import asyncio
import itertools
import logging
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.failures import ITSELF, ErrorTemplate, OnError
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import LONG_BYTES, Api, Router
from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.network.service import CloseConnection, ConnectionInfo
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.fair_lock import FairLock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support import messages as m
from tests.support.measures.busy_clock import BusyClock
from tests.support.network.wire import request_body, response_in

PART_MAX = 100
NAMES = [f"group-{number}" for number in range(2_000)]


class World:
    """A dispatcher with two APIs, one of which has long requests."""

    def __init__(self, describe: Any, **options: Any) -> None:  # noqa: ANN401
        def heartbeat(ctx: RequestContext, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
            return m.HeartbeatResponse(error_code=0)

        apis = [
            Api(m.HeartbeatRequest, versions="0-4").handled_by(heartbeat),
            Api(m.DescribeGroupsRequest, versions="0-6", part_max=PART_MAX, **options).handled_by(
                describe
            ),
        ]
        self.services = SimpleNamespace(
            purgatory=Purgatory(report=lambda doing, error: None),
            tasks=set(),
            quotas=None,
            access=None,
            clock=BusyClock(),
            long_requests=FairLock(),
        )
        self.dispatcher = Dispatcher(
            Router({api.key: api for api in apis}),
            cast("BrokerServices", self.services),
            EdgeMetrics(),
            PeerLog(logging.getLogger("peers"), VirtualClock()),
        )

    def describe(self, names: list[str], host: str = "/127.0.0.1") -> Deferred[Any]:
        frame = request_body(m.DescribeGroupsRequest(groups=names), 5)
        answer = self.dispatcher.serve(ConnectionInfo(host), frame)
        assert isinstance(answer, Deferred)
        return answer

    def beat(self) -> None:
        """Send a heartbeat, which is answered at once."""
        request = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        answer = self.dispatcher.serve(ConnectionInfo("/127.0.0.1"), request_body(request, 4))
        assert isinstance(answer, list)


def described(request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
    return m.DescribeGroupsResponse(
        groups=[
            m.DescribedGroup(
                error_code=0, group_id=name, group_state="Empty", protocol_type="",
                protocol_data="", members=[],
            )
            for name in request.groups
        ]
    )  # fmt: skip


def names_in(answer: Any) -> list[str]:  # noqa: ANN401
    frame = b"".join(answer)[4:]
    return [group.group_id for group in response_in(frame, m.DescribeGroupsResponse, 5).groups]


async def test_a_long_request_is_handled_in_parts_with_other_requests_in_between() -> None:
    sizes: list[int] = []

    def describe(ctx: RequestContext, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
        sizes.append(len(request.groups))
        return described(request)

    world = World(describe, parts=(lists("groups"),))
    pending = world.describe(NAMES)
    begun_at: list[int] = []
    while not pending.is_done:
        world.beat()
        begun_at.append(len(sizes))
        await asyncio.sleep(0)
    assert names_in(pending.result()) == NAMES
    assert set(sizes) == {PART_MAX}
    # Decoding, each part, and encoding are spread over event loop iterations.
    assert begun_at.count(0) > len(NAMES) // 4
    assert begun_at.count(len(sizes)) > len(NAMES) // 4
    assert max(after - before for before, after in itertools.pairwise(begun_at)) <= 2


async def test_a_handler_may_return_steps() -> None:
    def describe(
        ctx: RequestContext, request: m.DescribeGroupsRequest
    ) -> Steps[m.DescribeGroupsResponse]:
        response = m.DescribeGroupsResponse(groups=[])
        for name in request.groups:
            response.groups += described(m.DescribeGroupsRequest(groups=[name])).groups
            yield
        return response

    world = World(describe)
    for names in (NAMES[:100], NAMES):
        assert names_in(await world.describe(names)) == names


async def test_a_failed_part_whose_response_has_no_error_field_closes_the_connection() -> None:
    def describe(ctx: RequestContext, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    world = World(describe, parts=(lists("groups"),))
    with pytest.raises(CloseConnection):  # This registration has no error of its own.
        await world.describe(NAMES)


@pytest.mark.parametrize("long_bytes", [LONG_BYTES, sys.maxsize])
async def test_an_error_of_the_whole_request_is_answered_in_slices(long_bytes: int) -> None:
    calls: list[m.DescribeGroupsRequest] = []

    def describe(ctx: RequestContext, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
        calls.append(request)
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    on_error = OnError(
        ErrorTemplate(response="groups", request="groups", copied={"group_id": ITSELF})
    )
    world = World(describe, on_error=on_error, long_bytes=long_bytes)
    pending = world.describe(NAMES)
    iterations = 0
    while not pending.is_done:
        world.beat()
        iterations += len(calls)
        await asyncio.sleep(0)
    assert names_in(pending.result()) == NAMES
    # Both the making of the response and its encoding are spread over event loop iterations.
    assert iterations > len(NAMES)


async def test_a_client_that_disconnects_ends_its_request_and_the_next_one_is_executed() -> None:
    world = World(lambda ctx, request: described(request), parts=(lists("groups"),))
    first, second = world.describe(NAMES), world.describe(NAMES)
    await asyncio.sleep(0)
    first.cancel()
    assert names_in(await second) == NAMES
    assert not world.services.tasks


async def test_long_requests_of_one_client_delay_another_client_by_one_of_them() -> None:
    finished: list[str] = []
    world = World(lambda ctx, request: described(request), parts=(lists("groups"),))
    for number in range(5):
        answer = world.describe(NAMES[:1_000], "/10.0.0.1")
        answer.add_done_callback(lambda _, number=number: finished.append(f"many {number}"))  # type: ignore[misc]
    last = world.describe(NAMES[:1_000], "/10.0.0.2")
    last.add_done_callback(lambda _: finished.append("another"))
    while len(finished) < 6:  # noqa: ASYNC110 - iterations of the loop are what is tested.
        await asyncio.sleep(0)
    assert finished.index("another") <= 2


async def test_a_malformed_long_request_closes_its_connection() -> None:
    world = World(lambda ctx, request: described(request))
    frame = request_body(m.DescribeGroupsRequest(groups=NAMES), 5)[:-100]
    answer = world.dispatcher.serve(ConnectionInfo("/127.0.0.1"), frame)
    with pytest.raises(CloseConnection):
        await cast("Deferred[Any]", answer)
