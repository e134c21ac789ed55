"""Exactly once: drivers and brokers are killed, and the tables equal the topics, row for row."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.kohort_server import KohortServer
from tests.pipeline.driver import Driver, table_rows
from tests.pipeline.topics import Topics

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


def test_a_driver_that_is_killed_anywhere_leaves_what_the_next_one_completes(
    spark_jars: Path, tmp_path: Path, pipeline_kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {pipeline_kills} kills")
    chance = random.Random(seed)
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    hit: dict[str, int] = {}
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(PARTITIONS)
        options = (topic, "--available-now", "--max-offsets-per-trigger", str(BATCH))
        produced = 0
        for _ in range(pipeline_kills):
            topics.produce(topic, BATCH * BATCHES, partitions=PARTITIONS, first=produced)
            produced += BATCH * BATCHES
            with Driver(spark_jars, broker.bootstrap, lake, log, *options) as driver:
                where = wait_for_a_moment(driver, chance, lake, topic)
                driver.kill()
            hit[where] = hit.get(where, 0) + 1
        # What is left, at once: small batches are for being killed between them.
        with Driver(spark_jars, broker.bootstrap, lake, log, *options[:2]) as driver:
            assert driver.wait() == 0, log.read_text()[-3000:]
        landed = table_rows(lake / "land" / topic)
        assert landed == topics.read(topic)
        assert len(landed) == produced
        per_partition = produced // PARTITIONS
        expected = dict.fromkeys(range(PARTITIONS), per_partition)
        assert topics.committed("kohort-land", topic) == expected
    print(f"killed after: {hit}; {produced} rows, each once")


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


def test_a_query_outlives_brokers_that_are_killed_under_it(
    spark_jars: Path, tmp_path: Path, pipeline_kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {pipeline_kills} kills")
    chance = random.Random(seed)
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    table = lake / "land"
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(PARTITIONS)
        # What a round brings, and no more: it is to be in the midst of it, and to keep pace.
        options = (topic, "--interval", "0.2", "--max-offsets-per-trigger", str(6 * BATCH))
        produced = 0

        def produce() -> None:
            nonlocal produced
            topics.produce(topic, BATCH * 3, partitions=PARTITIONS, first=produced)
            produced += BATCH * 3

        with Driver(spark_jars, broker.bootstrap, lake, log, *options) as driver:
            for _ in range(pipeline_kills):
                before = numbers(table / topic / "_delta_log")
                produce()
                # It has begun with these records, and has not ended with them.
                wait_for_news(driver, table / topic / "_delta_log", before)
                time.sleep(chance.uniform(0, 0.5))
                broker.kill()
                time.sleep(chance.uniform(0, 2))
                broker.start()
                produce()
            expected = dict.fromkeys(range(PARTITIONS), produced // PARTITIONS)
            driver.wait_until(
                lambda: topics.committed("kohort-land", topic) == expected, "the last record"
            )
            assert driver.terminate_all() == 0
        assert table_rows(table / topic) == topics.read(topic)
    print(f"{produced} rows, each once")
