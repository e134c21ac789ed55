"""Many lives, one after the other on every core, and what came of them."""

import os
import time
from collections.abc import Iterator
from functools import partial

from tests.simulation.campaign import in_processes
from tests.simulation.consuming.life import Tally, live

STEPS = 600
"""Steps of one life before it is left alone: a minute or two of virtual time, seconds of ours."""


def live_many(seed: str, steps: int) -> Iterator[Tally]:
    """Lives with seeds of their own, made from `seed`, until they have had so many steps; what came
    of each. Raises a LifeError.
    """
    # A life is the same again only with the same hashes: `PYTHONHASHSEED=0` repeats it.
    os.environ["PYTHONHASHSEED"] = "0"
    seeds = (f"{seed}.{number}" for number in range(1 + steps // STEPS))
    for tally in in_processes([partial(live, one, min(STEPS, steps)) for one in seeds]):
        yield tally
        steps -= tally.steps
        if steps <= 0:
            return


def describe(total: Tally, begun_s: float) -> str:
    return (
        f"{total.lives:,} lives, {total.steps:,} steps, {total.records:,} records, "
        f"{total.commits:,} commits, {total.requests:,} requests in "
        f"{total.virtual_s / 3600:,.1f} hours, which took {time.monotonic() - begun_s:.0f} s"
    )
