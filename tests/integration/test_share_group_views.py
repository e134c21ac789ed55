"""A share group as its operator sees it: commands, metrics and console beside a broker process."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from kohort.groups.history.wording import short_id
from kohort.protocol.errors import ErrorCode
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.processes.commands import Said, said_by_process
from tests.support.share.running_share import Acquired
from tests.support.share.share_member import ShareMember, share_member

ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP, TOPIC = "workers", "jobs"
LOCK_MS = 120_000


class Looked(NamedTuple):
    """What there was to see while one member held locks and another had rejected a record."""

    holder: str
    rejecter: str
    described: Any
    text: str
    why: Said[str]
    of_record: Said[str]
    of_no_partition: Said[str]
    page: Any
    console: Any
    listed: Any
    metrics: dict[str, float]


async def look(server: KohortServer, metrics_url: str, console_url: str) -> Looked:
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        async with (
            share_member(server.bootstrap, GROUP, TOPIC) as rejecter,
            share_member(server.bootstrap, GROUP, TOPIC) as holder,
        ):
            # The group begins after the record that made the topic.
            for number in range(4):
                await producer.send_and_wait(TOPIC, b"job %d" % number, partition=0)
            await work(rejecter, holder)

            def groups(*arguments: str) -> Said[str]:
                return said_by_process("groups", *arguments)

            def get(url: str) -> str:
                with urlopen(url, timeout=60) as answer:
                    text: str = answer.read().decode()
                return text

            async def ask(*arguments: str) -> Said[str]:
                return await asyncio.to_thread(groups, *arguments)

            over_kafka = ("-b", server.bootstrap)
            over_http = ("--http", metrics_url)
            return Looked(
                holder.member_id,
                rejecter.member_id,
                (await ask("describe", GROUP, "--json", *over_kafka)).json,
                (await ask("describe", GROUP, *over_kafka)).out,
                await ask("why", GROUP, *over_http),
                await ask("why", GROUP, TOPIC, "0", "2", *over_http),
                await ask("why", GROUP, TOPIC, "7", *over_http),
                json.loads(await asyncio.to_thread(get, f"{metrics_url}/groups/{GROUP}/share")),
                json.loads(await asyncio.to_thread(get, f"{console_url}/api/groups/{GROUP}")),
                json.loads(await asyncio.to_thread(get, f"{console_url}/api/groups")),
                metrics_in(await asyncio.to_thread(get, f"{metrics_url}/metrics")),
            )


async def work(rejecter: ShareMember, holder: ShareMember) -> None:
    """Records 1 to 4: one accepted, one rejected, two released and locked by the other member."""
    assert await rejecter.fetch(max_wait_ms=5_000) == [Acquired(1, 4, 1)]
    types = (ACCEPT, REJECT, RELEASE, RELEASE)
    assert await rejecter.acknowledge(1, 4, *types) is ErrorCode.NONE
    assert await holder.fetch(max_wait_ms=5_000) == [Acquired(3, 4, 2)]


def metrics_in(text: str) -> dict[str, float]:
    """Samples of share groups, by name and label values."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "share" in sample.name
    }


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    metrics, console = free_port(), free_port()
    settings = {
        "kohort.metrics.port": str(metrics),
        "kohort.console.port": str(console),
        # Commands take a while on a busy machine.
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.max.record.lock.duration.ms": str(LOCK_MS),
        "group.share.session.timeout.ms": str(LOCK_MS),
        "group.share.max.session.timeout.ms": str(LOCK_MS),
    }
    with KohortServer(tmp_path_factory.mktemp("share"), overrides=settings) as server:
        urls = (f"http://127.0.0.1:{metrics}", f"http://127.0.0.1:{console}")
        yield asyncio.run(look(server, *urls))


def test_describe_shows_the_oldest_lock_and_what_was_counted(looked: Looked) -> None:
    (partition,) = looked.described["partitions"]
    assert (partition["topic"], partition["start"], partition["end"]) == (TOPIC, 3, 4)
    assert (partition["lag"], partition["acquired"]) == (2, 2)
    counts = {name: count for name, count in partition["counts"].items() if count}
    assert counts == {
        "deliveries": 6,
        "redeliveries": 2,
        "accepts": 1,
        "rejects": 1,
        "releases": 2,
    }
    lock = partition["oldest_lock"]
    assert (lock["member_id"], lock["offset"], lock["delivery_count"]) == (looked.holder, 3, 2)
    assert lock["until_ms"] - lock["since_ms"] == LOCK_MS
    (archived,) = looked.described["archived"]
    assert (archived["first_offset"], archived["how"]) == (2, "rejected")
    assert short_id(looked.holder) in looked.text


def test_why_says_what_holds_the_start_and_how_a_record_ended(looked: Looked) -> None:
    why = "\n".join(looked.why.lines)
    assert "Record 3 has kept the start offset of jobs-0" in why
    assert f"member {looked.holder} acquired it" in why
    assert "jobs-0, record 2: rejected" in why
    of_record = "\n".join(looked.of_record.lines)
    assert f"Delivery 1: member {looked.rejecter} rejected it" in of_record
    assert looked.of_no_partition.code
    assert "has not initialized this partition" in looked.of_no_partition.err


def test_the_page_and_the_console_show_the_same(looked: Looked) -> None:
    (partition,) = looked.page["share_partitions"]
    (shown,) = looked.console["share"]["share_partitions"]
    (described,) = looked.described["partitions"]
    for name in ("start", "end", "lag", "counts", "acquired"):
        assert partition[name] == shown[name] == described[name]
    assert shown["oldest_lock"]["member_id"] == looked.holder
    (archived,) = looked.console["share"]["archived"]
    assert archived["member_id"] == looked.rejecter
    assert all(member["assignment"] == {TOPIC: [0]} for member in looked.console["members"])
    (listed,) = looked.listed["groups"]
    assert looked.console["lag"] == listed["lag"] == 2
    assert looked.console["member_count"] == 2
    assert not looked.console["findings"]


def test_metrics_count_records_and_show_lag_and_locks(looked: Looked) -> None:
    assert looked.metrics[f"kohort_sharegroup_deliveries_total {GROUP}"] == 6
    assert looked.metrics[f"kohort_sharegroup_archived_at_limit_total {GROUP}"] == 0
    assert looked.metrics[f"kohort_sharegroup_lag {GROUP}"] == 2
    assert 0 < looked.metrics[f"kohort_sharegroup_oldest_lock_seconds {GROUP}"] < LOCK_MS / 1_000
    kind = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert looked.metrics[f"{kind} release"] == 2
    assert looked.metrics["kafka_server_sharepartitionmetrics_inflightmessagecount"] == 2
    assert looked.metrics["kafka_server_sharesessioncache_sharesessionscount"] == 2
