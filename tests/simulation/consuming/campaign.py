"""Many lives, one after the other on every core, and what came of them."""

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.simulation.campaign import process_count
from tests.simulation.consuming.life import Tally, live

STEPS = 600
"""Steps of one life before it is left alone: a minute or two of virtual time, seconds of ours."""


def live_many(seed: str, steps: int) -> Iterator[Tally]:
    """Lives with seeds of their own, made from `seed`, until they have had so many steps; what came
    of each, as it ends. Raises a LifeError.
    """
    seeds = (f"{seed}.{number}" for number in itertools.count())
    context = multiprocessing.get_context("spawn")
    count = process_count()
    # A life is the same again only with the same hashes: `PYTHONHASHSEED=0` repeats it.
    os.environ["PYTHONHASHSEED"] = "0"
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        work: set[Future[Tally]] = set()
        try:
            while steps > 0:
                while len(work) < count:
                    work.add(pool.submit(live, next(seeds), min(STEPS, steps)))
                done, work = wait(work, return_when=FIRST_COMPLETED)
                for one in done:
                    tally = one.result()
                    steps -= tally.steps
                    yield tally
        finally:
            pool.shutdown(cancel_futures=True)


def describe(total: Tally, begun_s: float) -> str:
    return (
        f"{total.lives:,} lives, {total.steps:,} steps, {total.records:,} records, "
        f"{total.commits:,} commits, {total.requests:,} requests in "
        f"{total.virtual_s / 3600:,.1f} hours, which took {time.monotonic() - begun_s:.0f} s"
    )
