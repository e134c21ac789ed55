"""The first request of an API waits until its handler is loaded."""

import asyncio

import pytest

from kohort.broker.network.service import CloseConnection, ResponseBuffers
from kohort.broker.runtime.deferred import Deferred
from tests.unit.broker.dispatch.test_dispatcher import HEARTBEAT, Side, ok, request_frame


class Loading:
    """Loads APIs when the test says so."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    def is_needed(self, key: int) -> bool:
        del key
        return not self.end.is_set()

    async def wait_loaded(self, key: int) -> None:
        del key
        await self.end.wait()


def side_with(loading: Loading) -> Side:
    side = Side(heartbeat=ok)
    side.dispatcher._router.loading = loading
    return side


def deferred(side: Side) -> Deferred[ResponseBuffers]:
    response = side.serve(request_frame(HEARTBEAT, 4))
    assert isinstance(response, Deferred)
    return response


async def test_a_request_is_executed_once_its_api_is_loaded() -> None:
    loading = Loading()
    side = side_with(loading)
    response = deferred(side)
    await asyncio.sleep(0)
    assert not response.is_done
    loading.end.set()
    assert await response == Side(heartbeat=ok).serve(request_frame(HEARTBEAT, 4))
    # The next request does not wait.
    side.answer(request_frame(HEARTBEAT, 4))


async def test_a_request_that_a_shutdown_interrupts_closes_its_connection() -> None:
    side = side_with(Loading())
    response = deferred(side)
    await asyncio.sleep(0)
    await side.dispatcher.close()
    with pytest.raises(CloseConnection, match="interrupted"):
        response.result()
