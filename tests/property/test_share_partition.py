"""A share-partition in random steps, with crashes, beside a model that has an entry per offset."""

from random import Random

from tests.property.share_partition_model import World

STEPS_PER_LIFE = 250


def test_a_share_partition_does_what_its_model_does(long_form: bool) -> None:
    steps = 1_000_000 if long_form else 8_000
    seeds = Random(20 if not long_form else None)
    for _ in range(steps // STEPS_PER_LIFE):
        seed = seeds.getrandbits(32)
        print("seed", seed)
        world = World(seed)
        for _ in range(STEPS_PER_LIFE):
            world.step()
        world.drain()
