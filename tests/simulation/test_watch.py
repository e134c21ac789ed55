"""A watcher reads the __consumer_offsets of simulated brokers, whose own history is the truth."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.campaign import process_count
from tests.simulation.life import CALM, ROUGH
from tests.simulation.watched import classic_world, compare, consumer_world, watch

EVENTS = 250
"""In the life of one world."""
CAUSES = 150
WORLDS_AT_ONCE = 48
KINDS = ("calm", "rough", "consumers")


def live(number: int) -> Counter[str]:
    """Let a world live, and count how a watcher's conclusions compare with its own history.

    Raises AssertionError if one that is certain is wrong.
    """
    kind, round_number = KINDS[number % len(KINDS)], number // len(KINDS)
    seed = f"watch.{kind}.{round_number}"
    commits = 0.3 + round_number % 3 * 0.3
    if kind == "consumers":
        watched = consumer_world(seed, commits, CAUSES)
    else:
        climate = CALM if kind == "calm" else ROUGH
        watched = classic_world(seed, climate, commits, EVENTS)
    seen: Counter[str] = Counter()
    for record in watch(watched, polls=round_number % 2 == 0):
        try:
            compare(record, watched.truth, seen)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return seen


def live_many(rebalances: int) -> Iterator[Counter[str]]:
    """Let worlds live until so many rebalances were compared."""
    count, number = 0, 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(process_count(), mp_context=context) as pool:
        while count < rebalances:
            for seen in pool.map(live, range(number, number + WORLDS_AT_ONCE)):
                count += seen["rebalances"]
                yield seen
            number += WORLDS_AT_ONCE


@pytest.mark.timeout(7200)
def test_what_a_watcher_calls_certain_is_in_the_history_of_the_broker(
    watched_rebalances: int, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_s, seen = time.monotonic(), Counter[str]()
    worlds = live_many(watched_rebalances) if watched_rebalances else map(live, range(6))
    for one in worlds:
        seen += one
    with capsys.disabled():
        print(f"\n{report(seen)}, {time.monotonic() - begun_s:.0f} s")
    assert seen["rebalances"] >= max(watched_rebalances, 300)
    assert seen["causes certain right"] > seen["rebalances"] // 10
    assert seen["fates certain right"] > seen["rebalances"] // 100
    assert seen["not in the own history"] <= seen["rebalances"] // 100


def report(seen: Counter[str]) -> str:
    more = f"{seen['superseded']:,} more were superseded, {seen['avoided']:,} avoided"
    lines = [f"{seen['rebalances']:,} rebalances; {more}"]
    for about in ("causes", "fates"):
        cells = [
            f"{certainty} {seen[f'{about} {certainty} right']:,} right, "
            f"{seen[f'{about} {certainty} wrong']:,} wrong"
            for certainty in ("certain", "likely", "unclear")
        ]
        lines.append(f"{about}: {'; '.join(cells)}")
    return "\n".join(lines)
