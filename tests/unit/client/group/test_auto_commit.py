"""Auto commit while the coordinator is away."""

import asyncio
import logging
import time

import pytest

from kohort.client.core.backoff import Backoff
from kohort.client.core.fetch.positions import Positions
from kohort.client.group.commits import AutoCommit
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_coordinator import HANGS_UP, A, Scene


@virtual
async def test_commits_that_fail_are_tried_again_less_and_less_often_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
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
    told = [one.getMessage() for one in caplog.records if one.name == "kohort.client.group.commits"]
    assert [text.partition(" and")[0] for text in told] == [
        "a commit failed",
        "commits succeed again",
    ]


@virtual
async def test_what_has_not_changed_is_committed_once_a_second_at_most() -> None:
    scene = Scene()
    positions = Positions()
    positions.set_assigned([A])
    positions.seek(A, 7)
    backoff = Backoff(100, 100, lambda: 0.5)
    commits = AutoCommit(positions.consumed, scene.offsets, interval_ms=0, backoff=backoff)
    began_s = time.monotonic() + 100
    polled_s = [began_s]
    # As a poll does that waits for three seconds: a turn, and then a rest until more is due.
    while polled_s[-1] < began_s + 3:
        commits.polled(polled_s[-1])
        await asyncio.sleep(1)
        polled_s.append(max(commits.idle_until_s, polled_s[-1] + 0.001))
    assert len(scene.broker.commits) == 3
    assert len(polled_s) < 10
    positions.seek(A, 8)
    commits.polled(began_s + 3)
    await asyncio.sleep(1)
    assert scene.broker.stored[0][0] == 8


@virtual
async def test_with_an_interval_of_nothing_a_commit_that_failed_waits_all_the_same() -> None:
    scene = Scene()
    positions = Positions()
    positions.set_assigned([A])
    positions.seek(A, 7)
    backoff = Backoff(100_000, 100_000, lambda: 0.5)
    commits = AutoCommit(positions.consumed, scene.offsets, interval_ms=0, backoff=backoff)
    scene.broker.faults.append(HANGS_UP)
    now_s = time.monotonic()
    commits.polled(now_s)
    await asyncio.sleep(1)
    assert commits.idle_until_s > now_s + 90
    commits.polled(now_s + 10)
    await asyncio.sleep(1)
    assert len(scene.broker.commits) == 0
    commits.polled(now_s + 200)
    await asyncio.sleep(1)
    assert scene.broker.stored[0][0] == 7
