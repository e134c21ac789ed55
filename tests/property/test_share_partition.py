"""A share-partition in random steps, with crashes, beside a model that has an entry per offset."""

from random import Random

import pytest

from tests.property.share_partition_model import World

STEPS_PER_LIFE = 250


@pytest.mark.parametrize("part", range(10))
def test_a_share_partition_does_what_its_model_does(part: int, long_form: bool) -> None:
    steps = 100_000 if long_form else 1_000
    seeds = Random(None if long_form else part)
    for _ in range(steps // STEPS_PER_LIFE):
        seed = seeds.getrandbits(32)
        try:
            live(seed)
        except BaseException:
            print("seed", seed)
            raise


def live(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS_PER_LIFE):
        world.step()
    world.drain()
