"""Limits on connections and on changes of topics, at a real Kafka and at this broker."""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.client_quotas import EntityData, EntryData
from tests.interop.conftest import start_twins
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Line, Pair, Side, Twins, opened
from tests.interop.same_answers.questions import questions
from tests.interop.same_answers.scenes import (
    batch,
    create_topic,
    fetch_request,
    fresh_name,
    produce,
    produce_request,
)
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

LIMITED: Final = "127.0.0.9"
SLOW: Final = 0.01
"""Partitions a second: what a test takes changes nothing that can be seen."""
TOLERANCE: Final = 0.05


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with start_twins(tmp_path_factory.mktemp("limited")) as twins:
        yield twins


@pytest.fixture
def pair(limited: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    with opened(limited, subtests) as made:
        yield made


def alteration(
    *entity: tuple[str, str | None], **limits: float | None
) -> m.AlterClientQuotasRequest:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            m.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in limits.items()
        ],
    )
    return m.AlterClientQuotasRequest(entries=[entry], validate_only=False)


def test_limits_are_taken_and_refused_alike(pair: Pair) -> None:
    for entity, limits in (
        ((("ip", "1.2.3.4"),), {"connection_creation_rate": 3.0}),
        ((("ip", "1.2.3.4"),), {"connection_creation_rate": 1.5}),
        ((("ip", "1.2.3.4"),), {"connection_creation_rate": 2.0**31}),
        ((("ip", "1.2.3.4"),), {"connection_creation_rate": 0.0}),
        ((("ip", "1.2.3.4"),), {"controller_mutation_rate": 1.0}),
        ((("ip", "1.2.3.4"), ("user", "u")), {"connection_creation_rate": 1.0}),
        ((("ip", "no address"),), {"connection_creation_rate": 1.0}),
        ((("ip", ""),), {"connection_creation_rate": 1.0}),
        ((("ip", "::1"),), {"connection_creation_rate": 1.0}),
        ((("ip", None),), {"connection_creation_rate": 1_000.0}),
        ((("user", "u"),), {"connection_creation_rate": 1.0}),
        ((("user", "u"),), {"controller_mutation_rate": 0.5}),
        ((("user", "u"), ("client-id", None)), {"controller_mutation_rate": 7.0}),
        ((("user", "u"),), {"controller_mutation_rate": 0.0}),
        ((("ip", None),), {"connection_creation_rate": None}),
    ):
        pair.ask(alteration(*entity, **limits), 1)
    for component in (
        m.ComponentData(entity_type="ip", match_type=2, match=None),
        m.ComponentData(entity_type="ip", match_type=0, match="1.2.3.4"),
        m.ComponentData(entity_type="ip", match_type=1, match=None),
        m.ComponentData(entity_type="user", match_type=0, match="u"),
    ):
        for strict in (False, True):
            asked = m.DescribeClientQuotasRequest(components=[component], strict=strict)
            pair.ask_until_equal(asked, 1)


def test_as_many_connections_of_an_address_are_served(pair: Pair) -> None:
    pair.ask(alteration(("ip", LIMITED), connection_creation_rate=2.0), 1)
    of_all = m.DescribeClientQuotasRequest(components=[], strict=False)
    pair.ask_until_equal(of_all, 1)
    served = [count_served(side, 25) for side in pair.sides]
    assert served == [20, 20]


def count_served(side: Side, count: int) -> int:
    """How many of so many connections get an answer; the others are closed instead."""
    made = [RawClient(side.port, source=LIMITED) for _ in range(count)]
    served = 0
    for one in made:
        with suppress(ConnectionError):
            served += one.is_answered()
        one.close()
    return served


class Changes:
    """Requests of one client, each on a connection of its own: those before it may have to wait."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.client_id = fresh_name("client")
        entity = ("client-id", self.client_id)
        pair.ask(alteration(entity, controller_mutation_rate=SLOW), 1)
        pair.ask_until_equal(m.DescribeClientQuotasRequest(components=[], strict=False), 1)

    def ask(self, request: Value, version: int) -> None:
        """Both fail and hold back alike."""
        line: Line = self.pair.open(client_id=self.client_id)
        answers = line.send(request, version).uncompared()
        kafka, kohort = (answer.throttle_time_ms for answer in answers)
        assert abs(kafka - kohort) <= TOLERANCE * kafka, (request, version, answers)
        for answer in answers:
            answer.throttle_time_ms = 0
        self.pair.compare(request, version, answers)


def creation(*counts: int, validate_only: bool = False) -> m.CreateTopicsRequest:
    topics = [
        m.CreatableTopic(
            name=fresh_name(),
            num_partitions=count,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for count in counts
    ]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=validate_only)


def test_changes_of_topics_are_charged_and_held_back_alike(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    changes = Changes(pair)
    # What is only looked at, what fails, and what there is too much of.
    changes.ask(creation(0), 7)
    changes.ask(creation(2), 7)
    changes.ask(creation(1), 7)
    changes.ask(creation(1, 1), 6)
    changes.ask(creation(3), 5)
    changes.ask(creation(0), 7)
    growth = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsTopic(name=topic.name, count=4, assignments=None)],
        timeout_ms=30_000,
        validate_only=False,
    )
    changes.ask(growth, 3)
    changes.ask(growth, 2)
    changes.ask(growth, 2)
    deletion = m.DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=30_000)
    changes.ask(deletion, 5)
    changes.ask(deletion, 4)
    changes.ask(deletion, 4)


@pytest.mark.parametrize("version", [5, 7])
def test_what_is_only_looked_at_is_charged_alike(pair: Pair, version: int) -> None:
    changes = Changes(pair)
    changes.ask(creation(2, validate_only=True), version)
    changes.ask(creation(2, validate_only=True), version)
    changes.ask(creation(2), version)


@pytest.mark.parametrize("version", [2, 3])
def test_growth_that_is_only_looked_at_is_charged_alike(pair: Pair, version: int) -> None:
    topic = create_topic(pair)
    changes = Changes(pair)
    for validate_only in (True, True, False, False):
        growth = m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name=topic.name, count=4, assignments=None)],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        changes.ask(growth, version)


@pytest.fixture
def hurried(pair: Pair) -> Iterator[Pair]:
    """Every client but this one is held back after its first request, for as long as can be."""
    # Kafka makes topics of coordinators by a request to its controller, and is held back like any
    # other client; what it forwards for others waits behind that.
    for kind in (0, 1):
        pair.ask_until_equal(m.FindCoordinatorRequest(key="anything", key_type=kind), 3)
    of_all = m.DescribeClientQuotasRequest(components=[], strict=False)
    pair.ask(alteration(("client-id", "test"), request_percentage=1e9), 1)
    pair.ask_until_equal(of_all, 1)
    pair.ask(alteration(("client-id", None), request_percentage=1e-6), 1)
    pair.ask_until_equal(of_all, 1)
    yield pair
    pair.ask(alteration(("client-id", None), request_percentage=None), 1)
    pair.ask_until_equal(of_all, 1)


def held_back(pair: Pair, request: Value, version: int) -> list[int | None]:
    """What both tell a client that has used up its time; None where an answer has no such field."""
    line = pair.open(client_id=fresh_name("client"))
    answers = line.send(request, version).uncompared()
    line.close()
    return [getattr(answer, "throttle_time_ms", None) for answer in answers]


AWAITS_ITSELF: Final = {"TxnOffsetCommit"}
"""Kafka asks itself about the transaction first, as a client that is held back like any other."""


def test_every_request_is_charged_for_its_time_alike(hurried: Pair) -> None:
    topic = create_topic(hurried)
    for one in questions([topic], [fresh_name("group")], [fresh_name("txn")]):
        if one.name in AWAITS_ITSELF and not hurried.are_both_kafka:
            continue
        for version in one.versions:
            told = held_back(hurried, one.request, version)
            if told[0] != told[1]:
                hurried.fail(one.request, version, f"  Kafka {told[0]} ms, Kohort {told[1]} ms")


def is_there(pair: Pair, side: Side, name: str) -> bool:
    asked = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    (topic,) = pair.line.ask_alone(side, asked, 12).topics
    return bool(topic.error_code == ErrorCode.NONE)


def test_topics_that_are_made_by_asking_for_them_are_charged_alike(pair: Pair) -> None:
    """What is overdrawn is not made, and no client is held back for it."""
    changes = Changes(pair)
    names = [fresh_name() for _ in range(3)]
    line = pair.open(client_id=changes.client_id)
    for name in names:
        asked = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        for side in pair.sides:
            assert line.ask_alone(side, asked, 12).throttle_time_ms == 0
            if name == names[0]:
                # Kafka's controller makes it after the answer.
                wait_until(partial(is_there, pair, side, name), "the topic to be there")
    time.sleep(1)
    for side in pair.sides:
        assert [is_there(pair, side, name) for name in names] == [True, False, False], side.name
    changes.ask(creation(1), 7)


def test_who_is_held_back_for_its_time_fetches_alike(hurried: Pair) -> None:
    topic = create_topic(hurried)
    produce(hurried, topic, batch(b"one", b"two"))
    hurried.open(client_id=fresh_name("client")).ask(fetch_request(topic), 12)


def throttled(pair: Pair, client_id: str, request: Value, version: int) -> list[int]:
    """What both tell a client of that id that has just connected, at once; in milliseconds."""
    line = pair.open(client_id=client_id)
    told = []
    for side in pair.sides:
        began = time.monotonic()
        told.append(line.ask_alone(side, request, version).throttle_time_ms)
        # Another connection of the client may be held back for long; this one is not.
        assert time.monotonic() - began < 10, side.name
    line.close()
    return told


def test_who_connects_anew_owes_what_he_owed_alike(pair: Pair) -> None:
    topic = create_topic(pair)
    client_id = fresh_name("client")
    pair.ask(alteration(("client-id", client_id), producer_byte_rate=10_000.0), 1)
    pair.ask_until_equal(m.DescribeClientQuotasRequest(components=[], strict=False), 1)
    request = produce_request(topic, batch(bytes(40_000)))
    told = [throttled(pair, client_id, request, 9) for _ in range(8)]
    print(told)
    for kafka, kohort in told:
        assert abs(kafka - kohort) <= TOLERANCE * kafka + 100, told
    # 320,000 bytes at 10,000 a second.
    assert min(told[-1]) > 15_000


def test_a_consumer_that_connects_anew_gets_nothing_alike(pair: Pair) -> None:
    topic = create_topic(pair)
    # One batch alone: of a second, Kafka would send as many bytes as it may.
    produce(pair, topic, batch(bytes(40_000)))
    client_id = fresh_name("client")
    pair.ask(alteration(("client-id", client_id), consumer_byte_rate=5_000.0), 1)
    pair.ask_until_equal(m.DescribeClientQuotasRequest(components=[], strict=False), 1)
    told = [throttled(pair, client_id, fetch_request(topic), 12) for _ in range(4)]
    print(told)
    assert told[0] == [0, 0]
    for kafka, kohort in told[1:]:
        assert kafka > 0
        assert abs(kafka - kohort) <= TOLERANCE * kafka + 100, told
