"""A broker that was used by a real client, as Prometheus and Grafana see it."""

import asyncio
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from random import SystemRandom

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.app import Broker, StartError
from kohort.broker.config import load
from kohort.broker.metrics.catalogue import METRICS
from kohort.broker.topics.compaction import Compactor
from scripts.metrics_document import document
from tests.support.brokers.server_process import free_port

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "kohort.json"


METRIC_NAME = re.compile(r"\b(?:kafka|kohort|process|python)_[a-z0-9_]+\b")

DASHBOARD_7589 = {
    # What Grafana's "Kafka Exporter Overview" asks for, with the labels it selects and groups by.
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partitions": {"topic"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
}


@asynccontextmanager
async def running(directory: Path, **settings: str) -> AsyncIterator[tuple[Broker, int]]:
    """A broker, and the port of its metrics."""
    port = free_port()
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "kohort.metrics.port": str(port),
        "kohort.console.port": "-1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    given = [f"{name}={value}" for name, value in overrides.items()]
    async with Broker(load(overrides=given, environment={})).running() as broker:
        yield broker, port


def fetch(port: int, path: str, *, host: str = "localhost") -> tuple[int, str, str]:
    """(status, content type, text) of a page."""
    try:
        answer = urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


async def scrape(port: int) -> dict[str, Metric]:
    """Metric families by name."""
    status, content_type, text = await asyncio.to_thread(fetch, port, "/metrics")
    assert status == 200
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """Value of the only sample of that name with these labels."""
    found = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, f"{len(found)} samples of {name}{labels}"
    return float(found[0])


async def use(broker: Broker) -> AIOKafkaConsumer:
    """Write ten records, read and commit six of them; the consumer is still a member."""
    bootstrap = f"127.0.0.1:{broker.endpoint.port}"
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(10):
        await producer.send_and_wait("orders", b"record %d" % number, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    for _ in range(6):
        await consumer.getone()
    await consumer.commit()
    return consumer


async def test_periodic_work_that_an_error_interrupts_is_told_to_probes_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Compactor) -> bool:
        raise RuntimeError("unforeseen")

    async with running(tmp_path) as (_, port):
        before = await asyncio.to_thread(fetch, port, "/-/healthy")
        assert (before[0], before[2]) == (200, "healthy\n")
    monkeypatch.setattr(Compactor, "compact_one", fail)
    async with running(tmp_path) as (_, port):
        status, _, text = await asyncio.to_thread(fetch, port, "/-/healthy")
        assert (status, text) == (200, "healthy, but failing: compaction\n")
        found = await scrape(port)
        assert value(found, "kohort_task_failures_total", task="compaction") >= 1
        assert value(found, "kohort_task_failures_total", task="retention") == 0
        assert value(found, "kohort_tasks_failing") == 1


async def test_a_scrape_tells_what_clients_have_done(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        consumer = await use(broker)
        found = await scrape(port)
        await consumer.stop()
        left = await scrape(port)
    partition = {"topic": "orders", "partition": "0"}
    assert value(found, "kafka_topic_partitions", topic="orders") == 1
    assert value(found, "kafka_topic_partition_current_offset", **partition) == 10
    assert value(found, "kafka_topic_partition_oldest_offset", **partition) == 0
    assert value(found, "kafka_topic_partition_leader", **partition) == 1
    assert value(found, "kafka_topic_partition_in_sync_replica", **partition) == 1
    size = value(found, "kafka_log_log_size", **partition)
    assert size == value(found, "kohort_topic_appended_bytes_total", topic="orders") > 10
    group = {"consumergroup": "readers"}
    assert value(found, "kafka_consumergroup_current_offset", **group, **partition) == 6
    assert value(found, "kafka_consumergroup_lag", **group, **partition) == 4
    assert value(found, "kafka_consumergroup_lag_sum", **group, topic="orders") == 4
    assert value(found, "kafka_consumergroup_members", **group) == 1
    assert value(left, "kafka_consumergroup_members", **group) == 0
    assert value(found, "kohort_consumergroup_state", **group, state="Stable") == 1
    coordinator = "kafka_coordinator_group_groupmetadatamanager"
    assert value(found, f"{coordinator}_numgroupsstable") == 1
    assert value(found, f"{coordinator}_numoffsets") == 1
    meters = "kafka_server_group_coordinator_metrics"
    assert value(found, f"{meters}_group_completed_rebalance_count") == 1
    assert value(found, f"{meters}_offset_commit_count") == 1
    assert value(left, "kohort_group_members_removed_total", cause="left") == 1


async def test_lag_in_time_is_the_age_of_the_oldest_unread_record(tmp_path: Path) -> None:
    hour_s = 3_600
    async with running(tmp_path) as (broker, port):
        bootstrap = f"127.0.0.1:{broker.endpoint.port}"
        now_ms = time.time_ns() // 1_000_000
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for hours in (6, 4, 2):
                sent_ms = now_ms - hours * hour_s * 1_000
                await producer.send_and_wait("orders", b"", partition=0, timestamp_ms=sent_ms)
        partition = TopicPartition("orders", 0)
        lags_s: dict[int, float] = {}
        found: dict[str, Metric] = {}
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="readers") as consumer:
            consumer.assign([partition])
            for offset in (1, 3):
                await consumer.commit({partition: offset})
                found = await scrape(port)
                lags_s[offset] = value(
                    found, "kohort_consumergroup_lag_seconds", consumergroup="readers"
                )
    assert 4 * hour_s <= lags_s[1] < 6 * hour_s
    assert lags_s[3] == 0
    status = os.statvfs(tmp_path)
    assert value(found, "kohort_disk_bytes") == status.f_blocks * status.f_frsize
    assert 0 < value(found, "kohort_disk_free_bytes") <= value(found, "kohort_disk_bytes")


async def test_a_scrape_tells_of_requests_connections_and_the_process(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        consumer = await use(broker)
        found = await scrape(port)
        await consumer.stop()
        left = await scrape(port)
    produced = [
        sample.value
        for sample in found["kohort_requests"].samples
        if sample.labels["api"] == "Produce"
    ]
    assert sum(produced) == 10
    count = value(found, "kohort_request_duration_seconds_count", api="Produce")
    assert count == 10
    assert value(found, "kohort_received_bytes_total") > 100
    assert value(found, "kohort_sent_bytes_total") > 100
    assert value(found, "kohort_connections") >= 1
    assert value(left, "kohort_connections_closed_total", reason="client") >= 2
    assert value(found, "process_resident_memory_bytes") > 10_000_000
    assert value(found, "kafka_brokers") == 1
    address = f"127.0.0.1:{broker.endpoint.port}"
    assert value(found, "kafka_broker_info", id="1", address=address) == 1


async def test_every_metric_is_there_and_in_the_document(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        consumer = await use(broker)
        families = await scrape(port)
        await consumer.stop()
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families.values()
    }
    assert set(METRICS) - found == set()
    ours = [name for name in found if not name.startswith(("process_", "python_"))]
    assert [name for name in ours if f"| `{name}` " not in document()] == []


async def test_no_scrape_grows_the_label_values_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        await (await use(broker)).stop()
        first = series(await scrape(port))
        async with asyncio.timeout(30):
            # The history's topic is made beside the group's first rebalance, and has series too.
            while not any("__rebalance_history" in one for one in first):
                first = series(await scrape(port))
        await scrape(port)
        last = series(await scrape(port))
    assert last == first


def series(families: dict[str, Metric]) -> set[str]:
    """What would be one time series each, of the metrics that have topics and groups."""
    ours = (family for family in families.values() if family.name.startswith("kafka_"))
    return {f"{sample.name}{sample.labels}" for family in ours for sample in family.samples}


def queries(node: object) -> Iterator[str]:
    """Every PromQL text of a dashboard."""
    if isinstance(node, dict):
        for key, child in node.items():
            if key in {"expr", "definition"} and isinstance(child, str):
                yield child
            else:
                yield from queries(child)
    elif isinstance(node, list):
        for child in node:
            yield from queries(child)


def sample_names(families: dict[str, Metric]) -> set[str]:
    """What can be queried: also of metrics that have no sample yet."""
    names = set()
    for family in families.values():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        names |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
    return names


async def test_what_dashboards_ask_for_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        consumer = await use(broker)
        families = await scrape(port)
        await consumer.stop()
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [set(METRIC_NAME.findall(query)) for query in queries(dashboard)]
    assert len(asked) > 20
    assert all(asked), "a query without a metric"
    assert set().union(*asked) - sample_names(families) == set()

    for name, labels in DASHBOARD_7589.items():
        assert {frozenset(sample.labels) for sample in families[name].samples} == {
            frozenset(labels)
        }


async def test_a_port_that_is_taken_stops_the_start_and_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "first") as (_, port):
        with pytest.raises(StartError, match=f"kohort.metrics.port={port}"):
            async with running(tmp_path / "second", kohort_metrics_port=str(port)):
                pass


@pytest.fixture
def host() -> str:
    """An address of this machine that nothing else listens at, so that its 9308 is free."""
    return str(IPv4Address("127.1.0.0") + SystemRandom().randrange(1 << 16))


def with_default_port(directory: Path, host: str) -> AbstractAsyncContextManager[Broker]:
    given = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}"]
    given += [f"kohort.metrics.host={host}", f"kohort.console.host={host}"]
    return Broker(load(overrides=given, environment={})).running()


async def test_two_brokers_start_side_by_side_without_a_port_of_http_being_set(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kohort.broker.assembly.web")
    first = with_default_port(tmp_path / "first", host)
    second = with_default_port(tmp_path / "second", host)
    async with first, second:
        told = [one for one in caplog.messages if one.startswith("Metrics are on port ")]
        ports = [int(one.split()[4]) for one in told]
        for port in ports:
            status, _, _ = await asyncio.to_thread(fetch, port, "/-/ready", host=host)
            assert status == 200
        consoles = [one for one in caplog.messages if one.startswith("The console is on port ")]
        console_ports = [int(one.split()[5]) for one in consoles]
        for port in console_ports:
            status, _, _ = await asyncio.to_thread(fetch, port, "/", host=host)
            assert status == 200
    assert len(set(ports)) == 2
    assert all(9308 <= port < 9328 for port in ports)
    assert "because port 9308 is taken" in told[1]
    assert len(set(console_ports)) == 2
    assert all(9328 <= port < 9348 for port in console_ports)
    assert "because port 9328 is taken" in consoles[1]


async def test_the_port_can_be_turned_off(tmp_path: Path) -> None:
    async with running(tmp_path, kohort_metrics_port="-1") as (broker, port):
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(fetch, port, "/-/healthy")
        await (await use(broker)).stop()
