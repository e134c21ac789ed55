"""The analysis is killed at random, and its tables are those of an undisturbed run."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.testing import assertDataFrameEqual

from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import AVOIDED, HISTORY, REBALANCES
from tests.pipeline.driver import LOGS, Driver, numbers, wait_for_news
from tests.pipeline.events import line, some_event
from tests.pipeline.lakes import lake_of
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 6
PARTITIONS = 3
ROUND = 24
"""Events of a round, which come in batches of a third of them."""
BAD = b"{"
"""A value that is no event."""
HASTY = ("--timeout", "3", "--kafka", "default.api.timeout.ms=3000")
"""Clients wait for a minute, three times, before they say that no broker answers."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(7_200),
    pytest.mark.usefixtures("shared_classes"),
]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_analysis_that_is_killed_costs_and_repeats_nothing(
    spark: SparkSession, spark_jars: Path, tmp_path: Path, pipeline_kills: int, kind: str
) -> None:
    """Drivers first; what they leave is completed by one that then outlives its brokers."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {pipeline_kills} kills of each")
    chance = random.Random(seed)
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        history = History(topics, chance)

        def start(place: Path, *options: str) -> Driver:
            more = ("--topic", history.topic, "--format", kind, *options)
            return Driver(spark_jars, broker.bootstrap, place, log, *more, job="rebalances")

        few = ("--max-offsets-per-trigger", str(ROUND // 3))
        hit: Counter[str] = Counter()
        for _ in range(pipeline_kills):
            history.go_on()
            with start(lake, "--available-now", *few) as driver:
                hit[wait_for_a_moment(driver, chance, lake, kind)] += 1
                if chance.random() < 0.1:
                    driver.kill_jvm()
                driver.kill()
        events = lake / REBALANCES.name / LOGS[kind]
        with start(lake, "--interval", "0.2", *HASTY) as driver:
            for _ in range(pipeline_kills):
                before = numbers(events)
                history.go_on()
                wait_for_news(driver, events, before)
                time.sleep(chance.uniform(0, 1))
                broker.kill()
                time.sleep(chance.uniform(0, 2))
                broker.start()
            assert driver.terminate() == 0, log.read_text()[-3000:]
        for place in (lake, tmp_path / "undisturbed"):
            with start(place, "--available-now") as driver:
                assert driver.wait() == 0, log.read_text()[-3000:]
        written = topics.read(history.topic)
    assert_same_tables(spark, lake, tmp_path / "undisturbed", kind)
    expected = sorted(
        (one["group"], one["sequence"])
        for one in (json.loads(row[4]) for row in written if row[4] != BAD)
        if one.get("outcome") != "running"
    )
    assert in_tables(spark, lake, kind) == expected
    assert len(expected) == history.events
    print(f"{kind}: killed after {dict(hit)}; {len(expected)} events, each once")


class History:
    """Events of some groups, as a broker would write them, in a topic of their own."""

    def __init__(self, topics: Topics, chance: random.Random) -> None:
        self.topic = topics.create(PARTITIONS)
        self.events = 0
        self._chance = chance
        self._producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})
        self._sequences = [0] * GROUPS

    def go_on(self) -> None:
        """A round more, of half of the groups, with a value in it that is no event."""
        groups = self._chance.sample(range(GROUPS), GROUPS // 2)
        for number in range(ROUND):
            group = groups[number % len(groups)]
            self._sequences[group] += 1
            self.events += 1
            for event in some_event(self._chance, f"group-{group}", self._sequences[group]):
                self._produce(line(event), group)
        self._produce(BAD, groups[0])
        assert self._producer.flush(120) == 0

    def _produce(self, value: bytes, group: int) -> None:
        key = f"group-{group}".encode()
        self._producer.produce(self.topic, value, key=key, partition=group % PARTITIONS)


def wait_for_a_moment(driver: Driver, chance: random.Random, lake: Path, kind: str) -> str:
    """Returns a random while after a random step of the run, or when it has ended by itself; says
    which step.
    """
    if chance.random() < 0.1:
        time.sleep(chance.uniform(0, 20))
        return "some time"
    checkpoint = "_checkpoints/rebalances/*/*"
    places = {
        "planned": f"{checkpoint}/offsets",
        "done": f"{checkpoint}/commits",
        # Of findings, which come last, there are twice as many tables.
        **{table.name: f"{table.name}/{LOGS[kind]}" for table in (*HISTORY, *FINDINGS)},
    }
    where, pattern = chance.choice(list(places.items()))

    def steps() -> int:
        return sum(len(numbers(place)) for place in lake.glob(pattern))

    wanted = steps() + chance.randint(1, 2)
    # What is found may be what was found before, and is not written then.
    while steps() < wanted and not driver.is_over:
        time.sleep(0.01)
    if driver.is_over:
        return "its end"
    time.sleep(chance.choice([0, 0, chance.uniform(0, 0.05), chance.uniform(0, 0.5)]))
    return where


def assert_same_tables(spark: SparkSession, one: Path, other: Path, kind: str) -> None:
    for table in (*HISTORY, *FINDINGS):
        found, expected = (lake_of(spark, place, kind).read(table.name) for place in (one, other))
        columns = sorted(expected.columns)
        assertDataFrameEqual(found.select(columns), expected.select(columns))


def in_tables(spark: SparkSession, lake: Path, kind: str) -> list[tuple[str, int]]:
    """Group and sequence of all events."""
    tables = lake_of(spark, lake, kind)
    rows = [
        (row["group"], row["sequence"])
        for table in (REBALANCES, AVOIDED)
        for row in tables.read(table.name).select("group", "sequence").collect()
    ]
    return sorted(rows)
