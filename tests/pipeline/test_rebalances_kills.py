"""The history is read to its end though its broker is killed under the query."""

import json
import time
from pathlib import Path

import pytest

from tests.pipeline.churn import Churn
from tests.pipeline.driver import Driver, added_rows
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.waiting import wait_until

HISTORY = "__rebalance_history"


def in_tables(lake: Path) -> list[tuple[str, int]]:
    """Group and sequence of all events."""
    columns = ["group", "sequence"]
    rows = [row for name in ("rebalances", "avoided") for row in added_rows(lake / name, columns)]
    return sorted((row["group"], row["sequence"]) for row in rows)


def in_topic(topics: Topics) -> set[tuple[str, int]]:
    if not topics.admin.list_topics(HISTORY, timeout=10).topics[HISTORY].partitions:
        return set()
    events = [json.loads(row[4]) for row in topics.read(HISTORY)]
    return {(one["group"], one["sequence"]) for one in events if one.get("outcome") != "running"}


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_broker_that_is_killed_under_the_query_costs_and_repeats_no_event(
    spark_jars: Path, tmp_path: Path
) -> None:
    http_port = free_port()
    overrides = {"kohort.metrics.port": str(http_port)}
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    with KohortServer(tmp_path / "broker", overrides=overrides) as broker:
        churn, topics = Churn(broker, http_port), Topics(broker.bootstrap)
        churn.eager("before")
        wait_until(lambda: len(in_topic(topics)) >= 4, "the history is written")
        # Clients wait for a minute, three times, before they report that there is no answer.
        hasty = ("--timeout", "3", "--kafka", "default.api.timeout.ms=3000")
        options = ("--interval", "1", *hasty)
        with Driver(spark_jars, broker.bootstrap, lake, log, *options, job="rebalances") as driver:
            driver.wait_until(lambda: len(in_tables(lake)) >= 4, "the first events")
            broker.kill()
            broker.start()
            churn.eager("after")
            wait_until(lambda: len(in_topic(topics)) >= 8, "the history goes on")
            driver.wait_until(
                lambda: set(in_tables(lake)) >= in_topic(topics), "events of after the kill"
            )
            # Amid the findings, as a rule.
            assert driver.terminate() == 0
        assert "Exception in thread" not in log.read_text(errors="replace")
        assert in_tables(lake) == sorted(in_topic(topics))


@pytest.mark.timeout(1800)
@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "told_first"),
    [("land", "batch 0, 10 rows"), ("rebalances", "10 in quarantine")],
)
def test_a_jvm_that_is_killed_is_told_of_in_a_sentence(
    spark_jars: Path, tmp_path: Path, job: str, told_first: str
) -> None:
    lake, log = tmp_path / "lake", tmp_path / "driver.log"
    with KohortServer(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create()
        topics.produce(topic, 10)
        options = ((topic,) if job == "land" else ("--topic", topic)) + ("--interval", "1")
        with Driver(spark_jars, broker.bootstrap, lake, log, *options, job=job) as driver:
            driver.wait_until(lambda: told_first in log.read_text(), "the first batch")
            # Amid the calls by which a job that waits looks after its query.
            time.sleep(2)
            driver.kill_jvm()
            assert driver.wait() == 3
    told = log.read_text(errors="replace")
    assert "Spark's JVM has ended (signal 9) during the job" in told
    assert "Traceback" not in told
