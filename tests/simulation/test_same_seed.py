"""A run is a function of its seed: else a failure could not be repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.life import CALM, ROUGH, Climate, GroupLife, make_world

ROOT = Path(__file__).parents[2]
EVENTS = 250
PRINT_TRACE = f"""
from tests.simulation.life import ROUGH, GroupLife, make_world
world = make_world("hash", ROUGH, keep_trace=True)
world.run(GroupLife(world, ROUGH).run({EVENTS}))
print("".join(world.trace), end="")
"""


def trace_of(seed: str, climate: Climate) -> list[str]:
    world = make_world(seed, climate, keep_trace=True)
    world.run(GroupLife(world, climate).run(EVENTS))
    assert world.trace is not None
    return world.trace


@pytest.mark.parametrize("climate", [CALM, ROUGH], ids=["calm", "rough"])
def test_the_same_seed_gives_the_same_trace_byte_for_byte(climate: Climate) -> None:
    first = trace_of("twice", climate)

    assert len(first) > 1_000
    assert trace_of("twice", climate) == first
    assert trace_of("other", climate) != first


def test_the_order_of_hashes_has_no_part_in_a_run() -> None:
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PRINT_TRACE],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
        )
        traces.append(done.stdout)

    assert traces[0].count(b"\n") > 1_000
    assert traces[0] == traces[1]
