"""`make simulate`: as many steps as there is time for, and how to repeat what went wrong."""

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests.property.test_group import GroupMachine
from tests.simulation.campaign import (
    CLIMATES,
    EVENTS,
    Tally,
    attribution,
    describe,
    live,
    live_many,
)
from tests.simulation.consuming import campaign as consuming
from tests.simulation.consuming.life import LifeError
from tests.simulation.consuming.life import Tally as ConsumingTally
from tests.simulation.consuming.life import live as live_consuming
from tests.simulation.world import SimulationError
from tests.support.walk import WalkError, walk

STEPS = 200_000
STEPS_PER_EVENT = 10
"""An event in the life of a whole broker costs as much as a few hundred steps of one group."""
PROGRESS_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of one group ({STEPS})")
    parser.add_argument("--seed", default="", help="any text; a new one every time by default")
    parser.add_argument("--world", help="one world, by the seed that a failure has printed")
    parser.add_argument("--consuming", help="one life of whole consumers, by its seed")
    options = parser.parse_args()
    if options.consuming:
        live_consuming(options.consuming, consuming.STEPS, report=print)
        return 0
    if options.world:
        climate = options.world.partition(".")[0]
        print(describe(live(options.world, climate, EVENTS), time.monotonic()))
        return 0
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    print(f"seed {seed} (SEED={seed} does the same again)", flush=True)
    try:
        _walk(seed, options.steps)
        worlds = max(1, options.steps // STEPS_PER_EVENT // EVENTS // 2)
        for climate in CLIMATES:
            _live(seed, climate, worlds)
        _consume(seed, options.steps)
    except LifeError as error:
        print(f"FAILED: {error}")
        print(
            "The same again: PYTHONHASHSEED=0 python -m tests.simulation --consuming, and that seed"
        )
        return 1
    except WalkError as error:
        print(f"FAILED: {error}")
        return 1
    except SimulationError as error:
        print(f"FAILED: {error}")
        world = str(error).partition(" ")[2].partition(":")[0]
        print(f"The same again: python -m tests.simulation --world {world}")
        return 1
    return 0


def _walk(seed: str, steps: int) -> None:
    begun_s = time.monotonic()
    report = _every(PROGRESS_S, lambda done: print(f"  {done:,} steps", flush=True))
    done = walk(GroupMachine, f"group.{seed}", steps=steps, progress=report)
    took_s = time.monotonic() - begun_s
    print(f"state machine of one group: {done:,} steps in {took_s:.0f} s", flush=True)


def _live(seed: str, climate: str, worlds: int) -> None:
    begun_s, total = time.monotonic(), Tally()
    report = _every(PROGRESS_S, lambda _: print(f"  {describe(total, begun_s)}", flush=True))
    for tally in live_many(f"{climate}.{seed}", climate, worlds):
        total.add(tally)
        report(total.worlds)
    print(f"{climate}: {describe(total, begun_s)}")
    if total.rebalances:
        print(attribution(total), flush=True)


def _consume(seed: str, steps: int) -> None:
    """Lives of whole consumers and their applications."""
    begun_s, total = time.monotonic(), ConsumingTally()
    report = _every(
        PROGRESS_S, lambda _: print(f"  {consuming.describe(total, begun_s)}", flush=True)
    )
    for tally in consuming.live_many(seed, steps):
        total.add(tally)
        report(total.lives)
    print(f"whole consumers: {consuming.describe(total, begun_s)}", flush=True)


def _every(interval_s: float, act: Callable[[int], None]) -> Callable[[int], None]:
    """`act`, but not more often than that."""
    last_s = time.monotonic()

    def maybe(done: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= interval_s:
            last_s = time.monotonic()
            act(done)

    return maybe


if __name__ == "__main__":
    sys.exit(main())
