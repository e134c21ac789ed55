"""Exactly once: drivers and brokers are killed, and the tables equal the topics, row for row."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.driver import Driver, table_rows
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer

PARTITIONS = 3
BATCH = 200
BATCHES = 6
"""How many batches there are to be done in a run at least, before it may be killed."""

pytestmark = pytest.mark.timeout(1800)


def numbers(directory: Path) -> set[str]:
    """Entries called by a number: what Spark and Delta have finished writing."""
    if not directory.exists():
        return set()
    return {path.name for path in directory.iterdir() if path.stem.isdigit()}


def test_drivers_and_brokers_that_are_killed_cost_and_repeat_no_record(
    spark_jars: Path, tmp_path: Path, pipeline_kills: int
) -> None:
    """Drivers first; what they leave is completed by one that then outlives its brokers."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {pipeline_kills} kills of each")
    chance = random.Random(seed)
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(PARTITIONS)

        def start(*options: str) -> Driver:
            group = ("--group", "landed")
            return Driver(spark_jars, broker.bootstrap, lake, log, topic, *group, *options)

        load = Load(topics, topic)
        hit: Counter[str] = Counter()
        for _ in range(pipeline_kills):
            load.produce(BATCH * BATCHES)
            with start("--available-now", "--max-offsets-per-trigger", str(BATCH)) as driver:
                hit[wait_for_a_moment(driver, chance, lake, topic)] += 1
                driver.kill()
        # What a round brings, and no more: it is to be in the midst of it, and to keep pace.
        with start("--interval", "0.2", "--max-offsets-per-trigger", str(6 * BATCH)) as driver:
            for _ in range(pipeline_kills):
                rows = lake / "land" / topic / "_delta_log"
                before = numbers(rows)
                load.produce(BATCH * 3)
                # It has begun with these records, and has not ended with them.
                wait_for_news(driver, rows, before)
                time.sleep(chance.uniform(0, 0.5))
                broker.kill()
                time.sleep(chance.uniform(0, 2))
                broker.start()
                load.produce(BATCH * 3)
            expected = dict.fromkeys(range(PARTITIONS), load.produced // PARTITIONS)
            driver.wait_until(
                lambda: topics.committed("landed", topic) == expected, "the last record"
            )
            assert driver.terminate_all() == 0, log.read_text()[-3000:]
        landed = table_rows(lake / "land" / topic)
        assert landed == topics.read(topic)
        assert len(landed) == load.produced
    print(f"drivers killed after: {dict(hit)}; {load.produced} rows, each once")


class Load:
    """Numbered records, as many in each partition."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.produced = 0
        self._topics, self._topic = topics, topic

    def produce(self, count: int) -> None:
        self._topics.produce(self._topic, count, partitions=PARTITIONS, first=self.produced)
        self.produced += count


def wait_for_a_moment(driver: Driver, chance: random.Random, lake: Path, topic: str) -> str:
    """Returns a random while after a random step of a random batch; says which step.

    The steps are seen by the files they leave, so a slow machine is killed at the same places.
    """
    if chance.random() < 0.1:
        time.sleep(chance.uniform(0, 20))
        return "some time"
    checkpoint = f"_checkpoints/land/{topic}/*"
    places = {
        "a batch was planned": f"{checkpoint}/offsets",
        "its rows were added": f"land/{topic}/_delta_log",
        "it was done": f"{checkpoint}/commits",
    }
    where, pattern = chance.choice(list(places.items()))

    def steps() -> set[str]:
        return {name for place in lake.glob(pattern) for name in numbers(place)}

    before, wanted = steps(), chance.randint(1, BATCHES - 2)
    driver.wait_until(lambda: len(steps() - before) >= wanted, where)
    time.sleep(chance.choice([0, 0, chance.uniform(0, 0.05), chance.uniform(0, 1)]))
    return where


def wait_for_news(driver: Driver, directory: Path, before: set[str]) -> None:
    driver.wait_until(lambda: bool(numbers(directory) - before), "rows of this round")
