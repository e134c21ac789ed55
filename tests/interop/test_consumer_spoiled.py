"""Our consumer behind a relay that spoils answers: it reads everything all the same."""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, TopicPartition, errors
from tests.interop.clients.confluent_client import ConfluentClient, admin_client
from tests.interop.model import Record
from tests.interop.relay import Relay, Spoiled
from tests.interop.same_answers.pair import wait_ready
from tests.kafka_server import KafkaServer
from tests.kohort_server import KohortServer
from tests.server_process import ServerProcess, free_port

RECORD_COUNT = 200
REQUEST_TIMEOUT_MS = 1_500
"""Short, for answers that never come."""

SESSION_MS = 2_000

TIMES = 2
"""How often the answers of each API are spoiled, from the first on."""

JOIN_GROUP, SYNC_GROUP, PRODUCE = 11, 14, 0

Change = Callable[[bytes], Spoiled]


@pytest.fixture(scope="module")
def relay_port() -> int:
    return free_port()


@pytest.fixture(scope="module", params=[KohortServer, KafkaServer], ids=["kohort", "kafka"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, relay_port: int
) -> Iterator[ServerProcess]:
    """It sends its clients to the relay."""
    directory: Path = tmp_path_factory.mktemp("spoiled")
    overrides = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay_port}",
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
    }
    with request.param(directory, overrides=overrides) as server:
        wait_ready(server)
        yield server


def cut(frame: bytes) -> Spoiled:
    whole = len(frame).to_bytes(4, "big") + frame
    return Spoiled(whole[: max(4, len(whole) // 2)], hangs_up=True)


def garbage(frame: bytes) -> Spoiled:
    data = random.Random(len(frame)).randbytes(len(frame))
    return Spoiled(len(data).to_bytes(4, "big") + data)


def nonsense(frame: bytes) -> Spoiled:
    """Answers the right request, with what that cannot be answered with."""
    data = frame[:4] + b"\x7f" * (len(frame) - 4)
    return Spoiled(len(data).to_bytes(4, "big") + data)


def another_protocol(_: bytes) -> Spoiled:
    return Spoiled(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")


def silence(_: bytes) -> Spoiled:
    return Spoiled(b"")


def twice(frame: bytes) -> Spoiled:
    whole = len(frame).to_bytes(4, "big") + frame
    return Spoiled(whole + whole)


def settings(relay: Relay, name: str) -> dict[str, object]:
    return {
        "bootstrap_servers": relay.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        # A member whose answer was spoiled is in the group's way for so long.
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 200,
        "max_poll_interval_ms": 10_000,
        "auto_commit_interval_ms": 100,
    }


def fill_topic(server: ServerProcess, name: str) -> None:
    """Behind the relay's back as far as libraries let us: what it spoils comes later."""
    bootstrap = f"127.0.0.1:{server.port}"
    admin = admin_client(bootstrap)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    records = [Record(b"%d" % number, partition=number % 2) for number in range(RECORD_COUNT)]
    ConfluentClient(bootstrap).produce(name, records)


async def read_all(consumer: Consumer) -> Counter[bytes]:
    """Values and how often they came, until all have and a while longer."""
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(90):
        while len(seen) < RECORD_COUNT:
            for records in (await consumer.poll(0.5, max_records=20)).values():
                seen.update(record.value for record in records)
    return seen


@pytest.mark.parametrize(
    "change",
    [cut, garbage, nonsense, another_protocol, silence, twice],
    ids=lambda one: one.__name__,
)
async def test_spoiled_answers_cost_time_and_nothing_else(
    server: ServerProcess, relay_port: int, change: Change
) -> None:
    name = f"spoiled-{uuid.uuid4().hex[:12]}"
    spoilt: Counter[int] = Counter()

    def spoil(key: int, frame: bytes) -> Spoiled | None:
        # A join may wait as long as a rebalance may take; its answer is not given up sooner.
        is_late = change is silence and key in {JOIN_GROUP, SYNC_GROUP}
        times = 1 if change is silence else TIMES
        if not is_spoiling or is_late or spoilt[key] >= times:
            return None
        spoilt[key] += 1
        return change(frame)

    is_spoiling = False
    async with Relay(relay_port, server.port) as relay:
        relay.spoil = spoil
        await asyncio.to_thread(fill_topic, server, name)
        is_spoiling = True
        seen = await _read_with_patience(relay, name)
        is_spoiling = False
        assert len(spoilt) >= 7, f"APIs that were answered: {sorted(spoilt)}"
        # Each attempt may have begun at the last commit.
        assert set(seen) == {b"%d" % number for number in range(RECORD_COUNT)}
        async with Consumer(**settings(relay, name)) as consumer:  # type: ignore[call-overload]
            committed = await consumer.committed_offsets(
                [TopicPartition(name, 0), TopicPartition(name, 1)]
            )
        assert {one.offset for one in committed.values() if one} == {RECORD_COUNT // 2}


async def _read_with_patience(relay: Relay, name: str) -> Counter[bytes]:
    """As an application that starts anew after an error; errors must be the consumer's own."""
    seen: Counter[bytes] = Counter()
    told: list[str] = []
    async with asyncio.timeout(120):
        while len(seen) < RECORD_COUNT:
            try:
                async with Consumer(name, **settings(relay, name)) as consumer:  # type: ignore[call-overload]
                    seen += await read_all(consumer)
            except errors.ConsumerError as error:
                told.append(str(error))
    assert all(len(text) > 20 for text in told), told
    return seen


async def test_a_broker_that_accepts_and_says_nothing_is_given_up(
    server: ServerProcess, relay_port: int
) -> None:
    async with Relay(relay_port, server.port) as relay:
        relay.spoil = lambda _key, _frame: Spoiled(b"")
        async with asyncio.timeout(30):
            with pytest.raises(errors.BrokerUnreachableError, match=f"{REQUEST_TIMEOUT_MS} ms"):
                await Consumer("any", **settings(relay, "any")).start()  # type: ignore[call-overload]
