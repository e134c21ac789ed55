"""Exactly once: drivers and brokers are killed, and the tables equal the topics, row for row."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.driver import (
    LOGS,
    Driver,
    iceberg_rows,
    numbers,
    table_rows,
    wait_for_news,
)
from tests.pipeline.topics import Topics, in_order
from tests.support.brokers.kohort_server import KohortServer

PARTITIONS = 3
BATCH = 200
BATCHES = 6
"""How many batches there are to be done in a run at least, before it may be killed."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(7_200),
    pytest.mark.usefixtures("shared_classes"),
]


@pytest.mark.parametrize("has_quarantine", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_drivers_and_brokers_that_are_killed_cost_and_repeat_no_record(
    spark_jars: Path,
    tmp_path: Path,
    pipeline_kills: int,
    kind: str,
    has_quarantine: bool,
) -> None:
    """Drivers first; what they leave is completed by one that then outlives its brokers.

    With a quarantine, every seventh value is bad, and each batch goes into two tables.
    """
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {pipeline_kills} kills of each")
    chance = random.Random(seed)
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(PARTITIONS)

        def start(*options: str) -> Driver:
            more = ("--value", "json") if has_quarantine else ()
            more = ("--group", "landed", "--format", kind, *more)
            return Driver(spark_jars, broker.bootstrap, lake, log, topic, *more, *options)

        load = Load(topics, topic)
        tables = [f"land/{topic}", *([f"quarantined/{topic}"] if has_quarantine else [])]
        hit: Counter[str] = Counter()
        for _ in range(pipeline_kills):
            load.produce(BATCH * BATCHES)
            with start("--available-now", "--max-offsets-per-trigger", str(BATCH)) as driver:
                hit[wait_for_a_moment(driver, chance, lake, tables, LOGS[kind])] += 1
                driver.kill()
        # What a round brings, and no more: it is to be in the midst of it, and to keep pace.
        with start("--interval", "0.2", "--max-offsets-per-trigger", str(6 * BATCH)) as driver:
            for _ in range(pipeline_kills):
                rows = lake / "land" / topic / LOGS[kind]
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
        read = table_rows if kind == "delta" else iceberg_rows
        landed, there = read(lake, f"land/{topic}"), topics.read(topic)
        if has_quarantine:
            aside = read(lake, f"quarantined/{topic}")
            assert aside == [row for row in there if row[4].endswith(b".")]
            landed = in_order(landed + aside)
        assert landed == there
        assert len(landed) == load.produced
    print(f"drivers killed after: {dict(hit)}; {load.produced} rows, each once")


class Load:
    """Numbered records, as many in each partition."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.produced = 0
        self._topics, self._topic = topics, topic

    def produce(self, count: int) -> None:
        self._topics.produce(
            self._topic, count, partitions=PARTITIONS, first=self.produced, json_but_every=7
        )
        self.produced += count


def wait_for_a_moment(
    driver: Driver, chance: random.Random, lake: Path, tables: list[str], log: str
) -> str:
    """Returns a random while after a random step of a random batch; says which step.

    The steps are seen by the files they leave, so a slow machine is killed at the same places.
    """
    if chance.random() < 0.1:
        time.sleep(chance.uniform(0, 20))
        return "some time"
    checkpoint = f"_checkpoints/{tables[0]}/*"
    places = {
        "a batch was planned": f"{checkpoint}/offsets",
        **{f"its rows were in {table.partition('/')[0]}": f"{table}/{log}" for table in tables},
        "it was done": f"{checkpoint}/commits",
    }
    where, pattern = chance.choice(list(places.items()))

    def steps() -> set[str]:
        return {name for place in lake.glob(pattern) for name in numbers(place)}

    before, wanted = steps(), chance.randint(1, BATCHES - 2)
    driver.wait_until(lambda: len(steps() - before) >= wanted, where)
    time.sleep(chance.choice([0, 0, chance.uniform(0, 0.05), chance.uniform(0, 1)]))
    return where
