"""Damaged requests against a whole broker: nothing may get out of hand, no client disturbed.

Most of them go straight into the connections' protocol objects, without sockets, in one process
with the broker; `make fuzz N=5000000` sends more. A failure prints the seed and the last bytes.
"""

import logging
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import uvloop

from tests.fuzz.frames import FrameFuzzer
from tests.fuzz.storm import SETTINGS, Alarms, storm_in_this_process
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

GROWTH_MAX_BYTES = 16 * 1024 * 1024


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    alarms = Alarms()
    logging.getLogger().addHandler(alarms)
    yield alarms
    logging.getLogger().removeHandler(alarms)


@pytest.fixture
def seed() -> int:
    """FUZZ_SEED repeats a run."""
    return int(os.environ.get("FUZZ_SEED") or time.time_ns() % 1_000_000_007)


def test_damaged_requests_do_no_harm(tmp_path: Path, fuzz_frames: int, seed: int) -> None:
    """In a process of its own, whose memory is the broker's alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        storm = pool.submit(storm_in_this_process, tmp_path, fuzz_frames, seed)
        growth_bytes = storm.result()
    print(f"seed {seed}, {fuzz_frames} frames, {growth_bytes} bytes more than after a quarter")
    assert growth_bytes < GROWTH_MAX_BYTES, f"FUZZ_SEED={seed}: more than after a quarter"


def test_damaged_requests_over_sockets_do_no_harm(
    tmp_path: Path, fuzz_frames: int, seed: int, alarms: Alarms
) -> None:
    fuzzer = FrameFuzzer(seed)
    with (
        BrokerThread(tmp_path, overrides=SETTINGS, loop_factory=uvloop.new_event_loop) as running,
        RawClient(running.port) as other,
    ):
        for _ in range(max(fuzz_frames // 10 // 20, 1)):
            with RawClient(running.port) as client:
                for _ in range(20):
                    try:
                        client.send(fuzzer.next_bytes())
                    except OSError:
                        break
            assert other.is_answered(), f"FUZZ_SEED={seed}"
        edge = running.broker.metrics.edge
        memory = running.broker.network.memory
        wait_until(
            lambda: running.call(lambda: edge.connection_count) == 1,
            f"the end of all connections but one, FUZZ_SEED={seed}",
        )
        wait_until(
            lambda: running.call(lambda: memory.used_bytes) == 0,
            lambda: f"the memory of requests to be free: {memory.used_bytes}, FUZZ_SEED={seed}",
        )
        assert other.is_answered()
    assert not alarms.lines, f"FUZZ_SEED={seed}: {alarms.lines[0]}"
