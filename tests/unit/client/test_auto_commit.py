"""Auto commit while the coordinator is away."""

import asyncio
import logging
import time

import pytest

from client.auto_commit import AutoCommit
from client.core.backoff import Backoff
from client.core.positions import Positions
from tests.unit.client.scripted_coordinator import HANGS_UP, A, Scene, on_virtual_time


def test_commits_that_fail_are_tried_again_less_and_less_often_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def test(scene: Scene) -> None:
        positions = Positions()
        positions.set_assigned([A])
        positions.seek(A, 7)
        # So long that the time that passes on the real clock does not matter.
        backoff = Backoff(100_000, 800_000, lambda: 0.5)
        commits = AutoCommit(positions.consumed, scene.offsets, interval_ms=10**9, backoff=backoff)
        scene.broker.faults.extend([HANGS_UP] * 4)
        waits = []
        for _ in range(4):
            now_s = time.monotonic()
            commits.begin(now_s)
            await asyncio.sleep(1)
            waits.append(round((commits.due_s - now_s) / 100))
        assert waits == [1, 2, 4, 8]
        assert backoff.failure_count == 4
        commits.begin(0.0)
        await asyncio.sleep(1)
        assert backoff.failure_count == 0
        assert scene.broker.stored[0][0] == 7

    on_virtual_time(test)
    told = [one.getMessage() for one in caplog.records if one.name == "kohort.client.auto_commit"]
    assert [text.partition(",")[0] for text in told] == ["a commit failed", "commits succeed again"]
