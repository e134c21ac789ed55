"""What the HTTP ports and the tools say while a broker verifies its logs."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.environment import Environment
from kohort.broker.storage.checkpoints.clean_shutdown import FILE_NAME as CLEAN_MARK
from kohort.broker.storage.filesystem import OsFile, OsFileSystem
from kohort.cli import admin_http, main
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.broker_thread import DEFAULTS, BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.requests import create_topics
from tests.support.network.wire import RawClient
from tests.support.waiting import until

PARTITIONS = 4


class HeldFiles(OsFileSystem):
    """Opening the log of one partition waits until it is released."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        self.released = threading.Event()

    def file(self, path: str) -> OsFile:
        if self._directory in path and path.endswith(".log"):
            self.released.wait(60)
        return super().file(path)


def fill(client: RawClient) -> None:
    """Create the topic `orders` with a record in each partition."""
    create_topics(client, "orders", partitions=PARTITIONS)
    batch = encode_batch([Record(b"value")])
    data = [m.PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    request = m.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[m.TopicProduceData(name="orders", partition_data=data)],
    )
    (produced,) = client.call(request, 9, m.ProduceResponse).responses
    assert not any(answer.error_code for answer in produced.partition_responses)


@asynccontextmanager
async def recovering(directory: Path) -> AsyncIterator[tuple[Broker, HeldFiles, int, int]]:
    """Start a broker whose recovery waits for one log; yield it and its HTTP ports."""
    with BrokerThread(directory) as running, RawClient(running.port) as client:
        fill(client)
    (directory / CLEAN_MARK).unlink()
    environment = Environment()
    environment.files = files = HeldFiles("/orders-2/")
    http, console = free_port(), free_port()
    settings = DEFAULTS | {
        "log.dirs": str(directory),
        "kohort.metrics.port": str(http),
        "kohort.console.port": str(console),
    }
    given = [f"{name}={value}" for name, value in settings.items()]
    broker = Broker(load(overrides=given, environment={}), environment=environment)
    stop = asyncio.Event()

    async def run() -> None:
        async with broker.running():
            await stop.wait()

    task = asyncio.create_task(run())
    try:
        await until(lambda: broker.startup.partitions_verified == PARTITIONS - 1)
        yield broker, files, http, console
    finally:
        files.released.set()
        stop.set()
        await task


async def get(port: int, path: str, accept: str = "*/*") -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        url = f"http://localhost:{port}{path}"
        request = urllib.request.Request(url, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


def gauges(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_every_page_says_that_the_broker_is_starting_and_how_far_it_is(
    tmp_path: Path,
) -> None:
    async with recovering(tmp_path) as (broker, files, http, console):
        for port, path in (
            (http, "/groups"),
            (http, "/groups/billing/rebalances?last=1"),
            (http, "/no/such/page"),
            (console, "/"),
            (console, "/api/groups"),
            (console, "/events"),
        ):
            status, text = await get(port, path)
            answer = json.loads(text)
            assert status == 503
            assert "the broker is starting" in answer["error"]
            assert answer["starting"]["partitions_verified"] == PARTITIONS - 1
            assert answer["starting"]["partitions_total"] == PARTITIONS
            assert 0 < answer["starting"]["bytes_verified"] < answer["starting"]["bytes_total"]
        status, text = await get(console, "/", accept="text/html,*/*")
        assert (status, text[:1]) == (503, "t")
        assert (await get(http, "/-/healthy"))[0] == 200
        status, text = await get(http, "/-/ready")
        assert (status, "3 of 4 partitions" in text) == (503, True)
        status, text = await get(http, "/metrics")
        assert status == 200
        assert gauges(text)["kohort_starting"] == 1
        assert gauges(text)["kohort_startup_partitions"] == PARTITIONS
        assert gauges(text)["kohort_startup_partitions_verified"] == PARTITIONS - 1

        files.released.set()
        await until(lambda: not broker.startup.phase)
        assert (await get(http, "/-/ready"))[0] == 200
        assert (await get(http, "/groups"))[0] == 200
        assert (await get(http, "/groups/billing"))[0] == 404
        assert (await get(console, "/api/groups"))[0] == 200
        after = gauges((await get(http, "/metrics"))[1])
        assert after["kohort_starting"] == 0
        assert after["kohort_startup_partitions_verified"] == PARTITIONS
        assert after["kohort_startup_bytes_verified"] == after["kohort_startup_bytes"] > 0


@pytest.mark.parametrize(
    "command", [["groups", "list"], ["groups", "why", "billing"], ["topics", "list"]]
)
async def test_commands_of_the_kafka_port_report_the_start(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    async with recovering(tmp_path) as (broker, _, http, _):
        # The default port may be another broker's here.
        monkeypatch.setattr(admin_http, "HTTP_PORT", http)
        server = f"127.0.0.1:{broker.endpoint.port}"
        arguments = [*command, "--bootstrap-server", server]
        assert await asyncio.to_thread(main, arguments) == 3
    assert "the broker is starting" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["why", "timeline", "advise"])
async def test_groups_commands_report_the_start_and_not_an_unknown_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    async with recovering(tmp_path) as (_, _, http, _):
        arguments = ["groups", command, "billing", "--http", f"http://localhost:{http}"]
        assert await asyncio.to_thread(main, arguments) == 3
    assert "the broker is starting" in capsys.readouterr().err


async def test_commands_that_use_the_kafka_port_report_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recovering(tmp_path) as (broker, _, http, _):
        # The port that a broker has by default, which another one may use here.
        monkeypatch.setattr(admin_http, "HTTP_PORT", http)
        address = f"127.0.0.1:{broker.endpoint.port}"
        assert await asyncio.to_thread(main, ["topics", "list", "-b", address]) == 3
    assert "the broker is starting" in capsys.readouterr().err
