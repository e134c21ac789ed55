"""Members of one group through all that goes wrong between them and their coordinator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.consumers import ConsumersLife

ROOT = Path(__file__).parents[2]
PRINT_TRACE = """
from tests.simulation.consumers import ConsumersLife
life = ConsumersLife("hash", "cooperative-sticky")
life.run(20)
print("".join(life.trace), end="")
"""


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(2))
def test_no_partition_has_two_owners_in_a_generation_and_all_settle_when_left_alone(
    seed: int, strategy: str
) -> None:
    ConsumersLife(str(seed), strategy).run(30)


def test_the_same_seed_gives_members_the_same_life_whatever_the_order_of_hashes() -> None:
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PRINT_TRACE]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        traces.append(done.stdout)
    assert traces[0].count(b"\n") > 1_000
    assert traces[0] == traces[1]
