"""Limits on connections and on changes of topics, at a real Kafka and at this broker."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from kohort.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kohort.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kohort.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.protocol.messages.delete_topics import DeleteTopicsRequest
from kohort.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.interop.conftest import start_twins
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Line, Pair, Side, Twins
from tests.interop.same_answers.scenes import create_topic, fresh_name
from tests.support.network.wire import RawClient

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
    def report(name: str, text: str) -> None:
        with subtests.test(name):
            pytest.fail(text, pytrace=False)

    with Pair(limited, report) as made:
        yield made


def alteration(*entity: tuple[str, str | None], **limits: float | None) -> AlterClientQuotasRequest:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in limits.items()
        ],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


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
        ComponentData(entity_type="ip", match_type=2, match=None),
        ComponentData(entity_type="ip", match_type=0, match="1.2.3.4"),
        ComponentData(entity_type="ip", match_type=1, match=None),
        ComponentData(entity_type="user", match_type=0, match="u"),
    ):
        for strict in (False, True):
            asked = DescribeClientQuotasRequest(components=[component], strict=strict)
            pair.ask_until_equal(asked, 1)


def test_as_many_connections_of_an_address_are_served(pair: Pair) -> None:
    pair.ask(alteration(("ip", LIMITED), connection_creation_rate=2.0), 1)
    of_all = DescribeClientQuotasRequest(components=[], strict=False)
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
        pair.ask_until_equal(DescribeClientQuotasRequest(components=[], strict=False), 1)

    def ask(self, request: Value, version: int) -> None:
        """Both fail and hold back alike."""
        line: Line = self.pair.open(client_id=self.client_id)
        answers = line.send(request, version).uncompared()
        kafka, kohort = (answer.throttle_time_ms for answer in answers)
        assert abs(kafka - kohort) <= TOLERANCE * kafka, (request, version, answers)
        for answer in answers:
            answer.throttle_time_ms = 0
        self.pair.compare(request, version, answers)


def creation(*counts: int, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(
            name=fresh_name(),
            num_partitions=count,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for count in counts
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=validate_only)


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
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic.name, count=4, assignments=None)],
        timeout_ms=30_000,
        validate_only=False,
    )
    changes.ask(growth, 3)
    changes.ask(growth, 2)
    changes.ask(growth, 2)
    deletion = DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=30_000)
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
        growth = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=4, assignments=None)],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        changes.ask(growth, version)
