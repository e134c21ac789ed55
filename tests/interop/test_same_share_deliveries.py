"""How often the records of a share group are delivered, and how many at once, while they are
released again and again: up to the limit of deliveries, in halves, and one by one.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.pair import Pair, Twins
from tests.interop.same_answers.share import RELEASE, SHORT_MS, acquired, errors
from tests.interop.same_answers.share_scenes import Scene

AT_ONCE: Final = 8
LIVES: Final = 1_000
LIVES_SHORT: Final = 12
ROUNDS_MAX: Final = 300
SLOWER: Final = 20
"""A fetch that finds nothing is repeated with a wait that is so much longer."""


class Life(NamedTuple):
    """What is in the topic, and how it is fetched."""

    limit: int
    sizes: tuple[int, ...]
    mode: int
    max_records: int
    batch_size: int
    released: float
    """The part of the deliveries that is released at once; others are released later."""


KNOWN: Final = (
    (Life(3, (10,), 0, 500, 500, 1), 12),
    (Life(4, (10,), 0, 500, 500, 1), 14),
    (Life(5, (10,), 0, 500, 500, 1), 15),
    (Life(5, (7,), 0, 500, 500, 1), 13),
    (Life(6, (10,), 0, 500, 500, 1), 22),
    (Life(2, (6,), 0, 500, 500, 1), 2),
)
"""Lives, and in how many answers Kafka delivers them."""


def some_life(seed: int) -> Life:
    chance = random.Random(seed)
    sizes: tuple[int, ...] = (chance.randint(1, 40),)
    if chance.random() < 0.4:
        sizes = tuple(chance.randint(1, 9) for _ in range(chance.randint(2, 4)))
    return Life(
        limit=chance.randint(2, 10),
        sizes=sizes,
        mode=chance.randint(0, 1),
        max_records=chance.choice([*range(1, 21), 500]),
        batch_size=chance.choice([1, 2, 3, 5, 500]),
        released=chance.choice([1, 1, 0.6]),
    )


def live(twins: Twins, life: Life, seed: int) -> int:
    """Compare all deliveries; return the number of answers with records."""
    chance = random.Random(seed)
    with Pair(twins, _fail) as pair:
        scene = Scene(pair, *life.sizes, share_delivery_count_limit=str(life.limit))
        # In each round the first keeps some, until there is nothing else.
        kept: list[tuple[int, int]] = []
        rounds = 0
        for _ in range(ROUNDS_MAX):
            answers = scene.one.fetch(
                [scene.place],
                max_wait_ms=SHORT_MS if rounds else SHORT_MS * SLOWER,
                max_records=life.max_records,
                batch_size=life.batch_size,
                share_acquire_mode=life.mode,
            )
            found = [(first, last) for _, first, last, _ in acquired(answers.kafka)]
            rounds += bool(found)
            if not found and not kept:
                return rounds
            now = [one for one in found if chance.random() < life.released]
            kept = [*kept, *(one for one in found if one not in now)]
            if not now:
                now, kept = kept, []
            batches = [(first, last, [RELEASE]) for first, last in sorted(now)]
            released = scene.acknowledge(scene.one, *batches)
            assert errors(released.kafka) == [ErrorCode.NONE]
    return rounds


def _fail(name: str, text: str) -> None:
    raise AssertionError(f"{name}: {text}")


@pytest.mark.parametrize(("life", "rounds"), KNOWN)
def test_deliveries_until_the_limit(twins: Twins, life: Life, rounds: int) -> None:
    assert live(twins, life, 0) == rounds


def test_deliveries_of_any_topic(
    twins: Twins, subtests: pytest.Subtests, *, long_form: bool
) -> None:
    count = LIVES if long_form else LIVES_SHORT
    with ThreadPoolExecutor(AT_ONCE) as threads:
        lives = {seed: threads.submit(live, twins, some_life(seed), seed) for seed in range(count)}
    for seed, lived in lives.items():
        with subtests.test(seed=seed, life=some_life(seed)):
            lived.result()
