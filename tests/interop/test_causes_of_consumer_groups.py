"""The history names what real clients of the consumer protocol (KIP-848) did, and in which words.

A broker of its own, always a Kohort.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import ConfluentMember, admin_client, create_topics
from tests.support.clients.java_client import JavaMember
from tests.support.clients.kohort_client import KohortMember
from tests.support.clients.model import Member, Seat
from tests.support.groups.group_probe import GroupProbe
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Place:
    port: int
    http_port: int
    bootstrap: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    http_port = free_port()
    overrides = {"kohort.metrics.port": str(http_port)}
    with KohortServer(tmp_path_factory.mktemp("causes"), overrides=overrides) as server:
        yield Place(server.port, http_port, server.bootstrap)


class Scene:
    """One group that reads one topic, and what its history has said since the last act."""

    def __init__(self, place: Place, group: str, join: Callable[[Seat], Member]) -> None:
        self.topic = group
        self._admin = admin_client(place.bootstrap)
        self._probe = GroupProbe(place.port, group, place.http_port)
        self._join = join
        self._partitions = 4
        self._sequence = 0
        create_topics(self._admin, NewTopic(self.topic, self._partitions, 1))

    def start(self, client_id: str, instance_id: str | None = None) -> Member:
        seat = Seat(client_id=client_id, instance_id=instance_id, uses_consumer_protocol=True)
        return self._join(seat)

    def grow(self, partitions: int) -> None:
        (future,) = self._admin.create_partitions([NewPartitions(self.topic, partitions)]).values()
        future.result(30)
        self._partitions = partitions

    def check(self, kind: str, client_id: str | None, words: str, *members: Member) -> None:
        """Once the members share all partitions, the act is the one cause."""

        def is_shared() -> bool:
            shares = [member.assigned() for member in members]
            return (
                sum(map(len, shares)) == self._partitions
                and len(set().union(*shares)) == self._partitions
                and all(shares)
            )

        wait_until(is_shared, lambda: f"shared: {[member.assigned() for member in members]}")
        wait_until(self._is_over, lambda: f"over: {self._news()}")
        (record,) = self._news()
        trigger = record["trigger"]
        assert (trigger["kind"], trigger["client_id"]) == (kind, client_id)
        assert words in self._probe.why(after=self._sequence)
        self._sequence = record["sequence"]

    def _news(self) -> list[dict[str, Any]]:
        return self._probe.records(after=self._sequence)

    def _is_over(self) -> bool:
        news = self._news()
        return bool(news) and news[-1].get("outcome") in {None, "stable"}


@pytest.mark.parametrize(
    "library",
    [
        pytest.param("kohort", marks=pytest.mark.long),
        "confluent",
        pytest.param("java", marks=pytest.mark.long),
    ],
)
def test_each_act_of_a_client_is_the_cause_that_the_history_names(
    library: str, place: Place, group: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:

        def join(seat: Seat) -> Member:
            member: Member
            match library:
                case "kohort":
                    member = KohortMember(place.bootstrap, group, group, seat)
                case "confluent":
                    member = ConfluentMember(place.bootstrap, group, group, seat)
                case _:
                    process = request.getfixturevalue("java_clients")
                    member = JavaMember(process, place.bootstrap, group, group, seat)
            return stack.enter_context(member)

        scene = Scene(place, group, join)
        first = scene.start("c")
        scene.check("member_added", "c", "(client.id c, host 127.0.0.1) joined", first)
        second = scene.start("second")
        scene.check("member_added", "second", "(client.id second, ", first, second)
        scene.grow(6)
        words = f"topics of the group have changed: {group} grew from 4 to 6 partitions"
        scene.check("topics_changed", None, words, first, second)
        static = scene.start("third", "static")
        scene.check("static_added", "third", "(static id static, ", first, second, static)
        static.leave()
        again = scene.start("again", "static")
        words = "(static id static, host 127.0.0.1) came back under a new member id"
        scene.check("static_replaced", "again", words, first, second, again)
        second.leave()
        scene.check("member_left", "second", " left", first, again)
