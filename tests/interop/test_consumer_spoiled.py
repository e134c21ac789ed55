"""Our consumer behind a relay that spoils answers: it reads everything all the same.

All scenes run at once, each with a relay of its own: what they do is waiting, for the most part.
"""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, TopicPartition, errors
from tests.interop.same_answers.pair import wait_ready
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record
from tests.support.network.relay import Relay, Spoiled

RECORD_COUNT = 200
REQUEST_TIMEOUT_MS = 1_500
"""Short, for answers that never come."""

SESSION_MS = 2_000

TIMES = 2
"""How often the answers of each API are spoiled, from the first on."""

JOIN_GROUP, SYNC_GROUP = 11, 14

GIVE_UP_S = 180

Change = Callable[[bytes], Spoiled]
Scene: TypeAlias = Callable[[ServerProcess, Relay, str], Coroutine[Any, Any, None]]
Running: TypeAlias = Mapping[tuple[str, str], Future[None]]
"""By broker and scene."""


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


CHANGES: Mapping[str, Change] = {
    change.__name__: change for change in (cut, garbage, nonsense, another_protocol, silence, twice)
}


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
    admin = admin_client(server.bootstrap)
    create_topics(admin, NewTopic(name, 2, 1))
    records = [Record(b"%d" % number, partition=number % 2) for number in range(RECORD_COUNT)]
    ConfluentClient(server.bootstrap).produce(name, records)


async def read_all(consumer: Consumer) -> Counter[bytes]:
    """Values and how often they came, until all have and a while longer."""
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(90):
        while len(seen) < RECORD_COUNT:
            for records in (await consumer.poll(0.5, max_records=20)).values():
                seen.update(record.value for record in records)
    return seen


async def read_spoiled_answers(server: ServerProcess, relay: Relay, scene: str) -> None:
    name, change = f"spoiled-{uuid.uuid4().hex[:12]}", CHANGES[scene]
    await asyncio.to_thread(fill_topic, server, name)
    spoilt: Counter[int] = Counter()

    def spoil(key: int, frame: bytes) -> Spoiled | None:
        # A join may wait as long as a rebalance may take; its answer is not given up sooner.
        is_late = change is silence and key in {JOIN_GROUP, SYNC_GROUP}
        times = 1 if change is silence else TIMES
        if is_late or spoilt[key] >= times:
            return None
        spoilt[key] += 1
        return change(frame)

    relay.spoil = spoil
    seen = await _read_with_patience(relay, name)
    relay.spoil = lambda _key, _frame: None
    assert len(spoilt) >= 7, f"APIs that were answered: {sorted(spoilt)}"
    # Each attempt may have begun at the last commit.
    assert set(seen) == {b"%d" % number for number in range(RECORD_COUNT)}
    async with Consumer(**settings(relay, name)) as consumer:  # type: ignore[arg-type]
        committed = await consumer.committed_offsets(
            [TopicPartition(name, 0), TopicPartition(name, 1)]
        )
    assert {one.offset for one in committed.values() if one} == {RECORD_COUNT // 2}


async def _read_with_patience(relay: Relay, name: str) -> Counter[bytes]:
    """Read as an application that restarts after an error; errors must be the consumer's own."""
    seen: Counter[bytes] = Counter()
    told: list[str] = []
    async with asyncio.timeout(120):
        while len(seen) < RECORD_COUNT:
            try:
                async with Consumer(name, **settings(relay, name)) as consumer:  # type: ignore[arg-type]
                    seen += await read_all(consumer)
            except errors.ConsumerError as error:
                told.append(str(error))
    assert all(len(text) > 20 for text in told), told
    return seen


async def start_in_silence(_server: ServerProcess, relay: Relay, _scene: str) -> None:
    relay.spoil = lambda _key, _frame: Spoiled(b"")
    async with asyncio.timeout(30):
        with pytest.raises(errors.BrokerUnreachableError, match=f"{REQUEST_TIMEOUT_MS} ms"):
            await Consumer("any", **settings(relay, "any")).start()  # type: ignore[arg-type]


FROM_THE_START = "silence from the start"

SCENES: Mapping[str, Scene] = {
    **dict.fromkeys(CHANGES, read_spoiled_answers),
    FROM_THE_START: start_in_silence,
}
BROKERS: Mapping[str, type[KohortServer | KafkaServer]] = {
    "kohort": KohortServer,
    "kafka": KafkaServer,
}


class Stage:
    """A broker with a listener for each scene, which sends its clients to that scene's relay."""

    def __init__(self, kind: type[KohortServer | KafkaServer], directory: Path) -> None:
        overrides = {
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "3",
        }
        server = kind(directory, overrides=overrides)
        settings = server.properties if isinstance(server, KafkaServer) else server.overrides
        names = {scene: f"SCENE{number}" for number, scene in enumerate(SCENES)}
        self._upstream_ports = {scene: free_port() for scene in SCENES}
        self._relay_ports = {scene: free_port() for scene in SCENES}
        own, protocols = f"PLAINTEXT://{server.bootstrap}", "PLAINTEXT:PLAINTEXT"
        if "CONTROLLER" in settings["listeners"]:
            protocols += ",CONTROLLER:PLAINTEXT"
        settings["listeners"] += _places(names, self._upstream_ports)
        settings["advertised.listeners"] = own + _places(names, self._relay_ports)
        settings["listener.security.protocol.map"] = protocols + "".join(
            f",{name}:PLAINTEXT" for name in names.values()
        )
        self.server = server

    def play(self, scene: str) -> None:
        """From beginning to end, on a loop of its own."""
        asyncio.run(self._play(scene))

    async def _play(self, scene: str) -> None:
        async with Relay(self._relay_ports[scene], self._upstream_ports[scene]) as relay:
            await SCENES[scene](self.server, relay, scene)


def _places(names: Mapping[str, str], ports: Mapping[str, int]) -> str:
    return "".join(f",{name}://127.0.0.1:{ports[scene]}" for scene, name in names.items())


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """All that the session has tests for."""
    chosen = [
        (str(item.callspec.params["broker"]), str(item.callspec.params["scene"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    stages = {
        name: Stage(BROKERS[name], tmp_path_factory.mktemp(name))
        for name in sorted({broker for broker, _ in chosen})
    }
    with ExitStack() as stack:
        for stage in stages.values():
            wait_ready(stack.enter_context(stage.server))
        pool = stack.enter_context(ThreadPoolExecutor(len(chosen)))
        yield {(broker, scene): pool.submit(stages[broker].play, scene) for broker, scene in chosen}
        pool.shutdown(cancel_futures=True)


each_broker = pytest.mark.parametrize(
    "broker", ["kohort", pytest.param("kafka", marks=pytest.mark.long)]
)


@each_broker
@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(name, marks=pytest.mark.long if change is silence else ())
        for name, change in CHANGES.items()
    ],
)
def test_spoiled_answers_cost_time_and_nothing_else(
    running: Running, broker: str, scene: str
) -> None:
    running[broker, scene].result(GIVE_UP_S)


@each_broker
@pytest.mark.parametrize("scene", [FROM_THE_START])
def test_a_broker_that_accepts_and_says_nothing_is_given_up(
    running: Running, broker: str, scene: str
) -> None:
    running[broker, scene].result(GIVE_UP_S)
