"""The advisor against recorded runs of librdkafka, aiokafka and Java.

`tests/interop/lives` made them. In the first, one member takes 2.5 s to revoke partitions, and the
heartbeat interval is 0.5 s: four runs under each of five settings, two with Java, on two cores at a
load of 5 to 8, with Java at 1 to 3.

In the others, of quick and of slow groups, the heartbeat interval is 3 s: two runs under each
setting, at a load of 10 to 80. The replay of heartbeats was developed with the quick groups of
librdkafka and with one run each of the quick groups of aiokafka; nothing was tuned on the others.
These were recorded before the history had the software of clients, which was added to their
records. The lives of consumer groups have heartbeats every 3 s, too, at a load of 2 to 6.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.lives.fidelity import hold, hold_consumers, recordings
from tests.interop.lives.life import load


@pytest.mark.parametrize(
    ("library", "count"),
    [
        ("librdkafka", 20),
        pytest.param("aiokafka", 20, marks=pytest.mark.long),
        pytest.param("java", 10, marks=pytest.mark.long),
    ],
)
def test_what_is_predicted_and_advised_of_lives_is_how_they_were_lived(
    library: str, count: int
) -> None:
    lives = load(Path(__file__).parent / f"lives-of-{library}.json.gz")
    assert len(lives) == count

    hold(list(recordings(lives)))


@pytest.mark.parametrize(
    ("library", "count"),
    [
        ("mixed", 12),
        pytest.param("librdkafka", 24, marks=pytest.mark.long),
        pytest.param("aiokafka", 12, marks=pytest.mark.long),
        pytest.param("java", 24, marks=pytest.mark.long),
    ],
)
def test_quick_and_slow_groups_live_as_predicted_and_advised(library: str, count: int) -> None:
    lives = load(Path(__file__).parent / f"quick-and-slow-lives-of-{library}.json.gz")
    assert len(lives) == count

    hold(list(recordings(lives)))


@pytest.mark.long
def test_consumer_groups_live_as_predicted() -> None:
    lives = load(Path(__file__).parent / "consumer-lives-of-librdkafka.json.gz")
    assert len(lives) == 20

    hold_consumers(list(recordings(lives)))


def test_a_star_that_is_not_better_when_it_is_lived_is_noticed() -> None:
    lives = load(Path(__file__).parent / "lives-of-librdkafka.json.gz")
    eager, _, cooperative, _, advised = lives[:5]
    (kept, *_) = recordings([eager, advised])
    assert kept.starred is not None
    assert kept.starred.tried == advised.way
    assert kept.is_kept

    # More rebalances, as if the advised way had been lived so; of stopped time there is less.
    worse = replace(advised, records=cooperative.records)
    (broken, *_) = recordings([eager, worse])
    assert broken.starred is not None
    assert not broken.is_kept
