import asyncio

from kohort.broker.network.connection.limits import Throttle
from kohort.broker.network.iteration import IterationScheduler
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop


def test_a_client_is_held_back_for_its_time_and_no_longer() -> None:
    async def run() -> None:
        turns, throttle = IterationScheduler(asyncio.get_running_loop(), VirtualClock()), Throttle()
        ended: list[bool] = []
        throttle.start(turns, 100, lambda: ended.append(throttle.is_active))
        await asyncio.sleep(0.09)
        assert (throttle.is_active, ended) == (True, [])
        await asyncio.sleep(0.02)
        assert ended == [False]
        throttle.start(turns, 100, lambda: ended.append(True))
        throttle.cancel()
        await asyncio.sleep(1)
        assert (throttle.is_active, ended) == (False, [False])

    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(VirtualClock())) as runner:
        runner.run(run())
