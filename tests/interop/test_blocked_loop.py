"""An application that does not let its event loop run for longer than a session.

Our consumer has a heartbeat thread and loses nothing. aiokafka sends its heartbeats from the loop:
its member is given up, another one reads its partitions meanwhile, and what it had read and not yet
committed is read twice. All of them run side by side, so that the short form takes as long as one.
"""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.same_answers.pair import Twins
from tests.support.clients.blocking_reader import AiokafkaReader, BlockingReader, KohortReader
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Member, Record, Seat
from tests.support.waiting import wait_until

RECORDS = 10
"""In each of two partitions before the loop is held up, and as many meanwhile."""


@dataclass(frozen=True, slots=True)
class Form:
    session_timeout_ms: int
    block_s: float


SHORT = Form(3_000, 4.5)
"""Fifteen of our heartbeats to a session, which a busy machine does not hold up for so long."""

LONG = Form(10_000, 120)

FORMS = [
    pytest.param(SHORT, id="short"),
    pytest.param(LONG, id="long", marks=pytest.mark.long),
]


@dataclass(frozen=True, slots=True)
class LoopMeasurement:
    reader: BlockingReader
    rival: list[Record]
    """What the other member has read."""
    rival_held: set[int]
    """Its partitions when the loop was let go."""

    @property
    def reads(self) -> Counter[tuple[int, int]]:
        """How often each record was read, by both together."""
        rival = ((one.partition or 0, one.offset or 0) for one in self.rival)
        return Counter([*self.reader.read, *rival])


Act = tuple[str, str]
"""Which broker, and which reader."""

READERS: Mapping[str, tuple[type[BlockingReader], bool]] = {
    "handler": (KohortReader, False),
    "callback": (KohortReader, True),
    "aiokafka": (AiokafkaReader, False),
}


@pytest.fixture(scope="module", params=FORMS)
def outcomes(request: pytest.FixtureRequest, twins: Twins) -> Iterator[dict[Act, LoopMeasurement]]:
    form: Form = request.param
    acts = [(broker, reader) for broker in ("kohort", "kafka") for reader in READERS]
    with ThreadPoolExecutor(len(acts)) as pool:
        running = {
            act: pool.submit(play, getattr(twins, act[0]).bootstrap, *READERS[act[1]], form)
            for act in acts
        }
        yield {act: outcome.result(form.block_s + 240) for act, outcome in running.items()}


def play(
    bootstrap: str, kind: type[BlockingReader], in_callback: bool, form: Form
) -> LoopMeasurement:
    """One reader and its rival in a group of two partitions, from beginning to end."""
    name = f"blocked-{uuid.uuid4().hex[:12]}"
    admin = admin_client(bootstrap)
    create_topics(admin, NewTopic(name, 2, 1))
    client = ConfluentClient(bootstrap)
    reader = kind(
        bootstrap,
        name,
        session_timeout_ms=form.session_timeout_ms,
        block_s=form.block_s,
        in_callback=in_callback,
    )
    try:
        wait_until(lambda: len(reader.assigned) == 2, f"{kind.__name__} to have joined")
        if in_callback:
            # In the callback of the rebalance that the other member's join is going to cause.
            reader.may_block.set()
        seat = Seat(session_timeout_ms=form.session_timeout_ms)
        with client.join(name, name, seat) as rival:
            wait_until(lambda: len(rival.assigned()) == 1, "the other member to have joined")
            if in_callback:
                client.produce(name, batch())
            else:
                wait_until(lambda: len(reader.assigned) == 1, "the partitions to be shared")
                client.produce(name, batch())
                wait_until(lambda: len(reader.read) >= RECORDS, "the first records to be read")
                reader.may_block.set()
            client.produce(name, batch())
            assert reader.is_blocked.wait(60), "the loop was not held up"
            if kind is AiokafkaReader:
                # The other member learns of it with a heartbeat of its own, and joins again.
                wait_until(lambda: len(rival.assigned()) == 2, "the partitions to be taken over")
            reader.may_go_on.set()
            assert reader.is_over.wait(form.block_s + 60)
            held = rival.assigned()
            wait_until(lambda: all_read(reader, rival), "all records to have been read")
            reader.leave()
            return LoopMeasurement(reader, rival.records(), held)
    finally:
        reader.leave()


def batch() -> list[Record]:
    return [Record(b"x", partition=partition) for partition in (0, 1) for _ in range(RECORDS)]


def all_read(reader: BlockingReader, rival: Member) -> bool:
    assert reader.failure is None, reader.failure
    return len(LoopMeasurement(reader, rival.records(), set()).reads) == 4 * RECORDS


@pytest.mark.parametrize("where", ["handler", "callback"])
@pytest.mark.parametrize("broker", ["kohort", "kafka"])
def test_our_consumer_loses_nothing_while_its_loop_is_held_up(
    outcomes: dict[Act, LoopMeasurement], broker: str, where: str
) -> None:
    outcome = outcomes[broker, where]
    assert len(outcome.rival_held) == 1, "its partition went to the other member"
    assert outcome.reader.before == outcome.reader.after, "it had to join again"
    assert set(outcome.reads.values()) == {1}
    assert outcome.reader.commit_error is None


@pytest.mark.parametrize("broker", ["kohort", "kafka"])
def test_aiokafka_loses_its_partition_and_its_records_are_read_twice(
    outcomes: dict[Act, LoopMeasurement], broker: str
) -> None:
    outcome = outcomes[broker, "aiokafka"]
    assert len(outcome.rival_held) == 2
    assert outcome.reader.before != outcome.reader.after
    assert max(outcome.reads.values()) > 1
