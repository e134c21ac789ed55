"""A run is a function of its seed: else a failure could not be repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GROUPS = """
from tests.simulation.life import {climate}, GroupLife, make_world
world = make_world("hash", {climate}, keep_trace=True)
world.run(GroupLife(world, {climate}).run(250))
print("".join(world.trace), end="")
"""
CONSUMERS = """
from tests.simulation.consuming.life import live
live("hash.2", 60, report=print)
"""


def trace_of(program: str, hash_seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return done.stdout


@pytest.mark.parametrize(
    ("program", "hash_seeds"),
    [
        (GROUPS.format(climate="CALM"), "12"),
        (GROUPS.format(climate="ROUGH"), "12"),
        # Sets are in the order of hashes, and what is in them does not wait for its turn.
        (CONSUMERS, "00"),
    ],
    ids=["calm groups", "rough groups", "consumers"],
)
def test_the_same_seed_gives_the_same_trace(program: str, hash_seeds: str) -> None:
    first, second = (trace_of(program, hash_seed) for hash_seed in hash_seeds)
    assert first.count(b"\n") > 30
    assert first == second
