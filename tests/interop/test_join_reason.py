"""JoinReason over the wire: its tag, the answers, and stock clients in the same group.

The decision table, row by row, is in tests/unit/groups/test_join_reason.py.

A broker of its own, always a Kohort; what a real Kafka does with the tag, which is nothing, is in
test_same_groups_protocols.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kohort.protocol.join_reason import JoinReason
from tests.interop.conftest import BuildClient
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.java_client import JavaMember
from tests.support.clients.model import ANY_SEAT
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import (
    PendingJoin,
    RawMember,
    bring_together,
    settle,
    share,
)
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

TOPIC = "t"
PARTITIONS = 6
TIMES = 5
RAW_CLIENT_ID = "test"
"""What tests.support.network.wire says."""


@dataclass(frozen=True, slots=True)
class Place:
    port: int
    http_port: int
    bootstrap: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    http_port = free_port()
    overrides = {
        "kohort.metrics.port": str(http_port),
        "group.initial.rebalance.delay.ms": "100",
    }
    with KohortServer(tmp_path_factory.mktemp("reasons"), overrides=overrides) as server:
        admin = admin_client(server.bootstrap)
        create_topics(admin, NewTopic(TOPIC, PARTITIONS, 1))
        yield Place(server.port, http_port, server.bootstrap)


class Scene:
    """A leader and a follower of one group, and what the broker says of it."""

    def __init__(self, place: Place, group: str) -> None:
        self.group = group
        self.probe = GroupProbe(place.port, group, place.http_port)
        self.leader = RawMember(place.port, group, topic=TOPIC)
        self.follower = RawMember(place.port, group, topic=TOPIC)

    def gather(self) -> None:
        """CompletingRebalance."""
        bring_together(self.probe, self.leader, self.follower)

    def settle(self) -> None:
        """Stable."""
        self.gather()
        settle(self.leader, self.follower)

    def last(self) -> dict[str, Any]:
        """The newest record; one that has just ended is there a moment after members know."""
        wait_until(lambda: bool(self.probe.records()), "a record of the group")
        return self.probe.records()[-1]

    def check_goes_on(
        self, waiting: PendingJoin, member: RawMember, row: int, *, is_told: bool = True
    ) -> None:
        """The join is answered with the generation that there is, and avoided by that row; the
        history tells of it if the member said why it joined.
        """
        generation = self.leader.generation
        assert not waiting.answer().error_code
        assert member.generation == generation
        assert self.probe.describe().group_state == "Stable"
        if is_told:
            wait_until(lambda: self.last()["kind"] == "avoided", "the avoided rebalance's record")
            assert self.last()["trigger"]["row"] == row
        else:
            assert self.last()["kind"] == "rebalance"

    def check_rebalances(self, row: int | None) -> None:
        """The group collects joins, and the history names the row."""
        wait_until(lambda: self.probe.describe().group_state == "PreparingRebalance", "a rebalance")
        last = self.last()
        assert (last["kind"], last["outcome"]) == ("rebalance", "running")
        assert last["trigger"]["row"] == row
        assert last["trigger"]["client_id"] == RAW_CLIENT_ID


@pytest.fixture
def scene(place: Place, group: str) -> Scene:
    return Scene(place, group)


# Payloads.


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00", None),
        (b"\x01\x06", JoinReason.ENFORCED),
        (b"\x03\x06\xff\xff", JoinReason.ENFORCED),
        (b"\x03\x01\x06\x06", JoinReason.RESTART),
        (b"\x01\x86", None),
    ],
    ids=["empty", "one byte", "longer", "longer, another first", "negative"],
)
@pytest.mark.parametrize("version", [6, 9])
def test_the_first_byte_of_the_tag_counts(
    scene: Scene, version: int, payload: bytes, reason: JoinReason | None
) -> None:
    def tagged(body: bytes) -> bytes:
        assert body.endswith(b"\x00")
        return body[:-1] + b"\x01\xb0\x3c" + payload

    scene.settle()
    waiting = scene.follower.join(version=version, edit=tagged)
    if reason is JoinReason.ENFORCED:
        scene.check_rebalances(10)
        trigger = scene.last()["trigger"]
        assert (trigger["reason"], trigger["reason_source"]) == ("ENFORCED", "tag")
    else:
        scene.check_goes_on(waiting, scene.follower, 16, is_told=reason is not None)


def test_before_version_6_there_is_no_place_for_a_tag(scene: Scene) -> None:
    scene.settle()

    waiting = scene.follower.join(JoinReason.ENFORCED, version=5)

    scene.check_goes_on(waiting, scene.follower, 16, is_told=False)


# Beside stock clients.

each_library = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "confluent" else pytest.mark.long)
        for name in ("aiokafka", "confluent", "java", "kafka-python")
    ],
)


@each_library
def test_a_follower_forces_a_stock_leader_to_rebalance_once_every_time(
    place: Place, scene: Scene, build_client: BuildClient, name: str
) -> None:
    member = scene.follower
    with build_client(name, place.bootstrap).join(scene.group, TOPIC) as stock:
        wait_until(lambda: len(stock.assigned()) == PARTITIONS, "all partitions held")
        assert not member.arrive().answer().error_code
        assert not member.sync().error_code
        wait_until(lambda: len(stock.assigned()) == PARTITIONS // 2, "half of them held")
        scene.probe.wait_stable(2)
        sequence, generation = scene.probe.wait_told()["sequence"], member.generation

        for time in range(1, TIMES + 1):
            answer = member.join(JoinReason.ENFORCED).answer()
            assert (answer.error_code, answer.generation_id) == (0, generation + time)
            assert not member.sync().error_code
            scene.probe.wait_stable(2)

        # What kafka-python's leader does of its own accord afterwards (once in 100 runs it rejoins)
        # is none of the generations that were counted above.
        news = scene.probe.wait_records(TIMES, after=sequence)[:TIMES]
        found = [(record["trigger"]["kind"], record["trigger"]["reason"]) for record in news]
        assert found == [("forced_by_reason", "ENFORCED")] * TIMES
        assert not any(record["further_causes"] for record in news)


@each_library
def test_a_leader_that_has_restarted_is_not_noticed_by_stock_followers(
    place: Place, scene: Scene, build_client: BuildClient, name: str
) -> None:
    leader = scene.leader
    assert not leader.arrive().answer().error_code
    assert not leader.sync({leader.member_id: share(TOPIC, *range(PARTITIONS))}).error_code
    with build_client(name, place.bootstrap).join(scene.group, TOPIC) as stock:
        wait_until(lambda: len(scene.probe.describe().members) == 2, "both to be members")
        joined = leader.join().answer()
        (other,) = {member.member_id for member in joined.members} - {leader.member_id}
        shares = {leader.member_id: share(TOPIC, 0, 1), other: share(TOPIC, 2, 3, 4, 5)}
        assert not leader.sync(shares).error_code
        wait_until(lambda: stock.assigned() == {2, 3, 4, 5}, "the stock client's share")
        scene.probe.wait_stable(2)

        for _ in range(TIMES):
            answer = leader.join(JoinReason.RESTART).answer()
            assert (answer.error_code, answer.generation_id) == (0, joined.generation_id)

        assert scene.probe.generation() == joined.generation_id
        assert stock.assigned() == {2, 3, 4, 5}


def test_the_text_of_a_java_clients_enforced_rebalance_is_in_the_history(
    place: Place, scene: Scene, java_clients: JavaProcess
) -> None:
    text = "the cache is warm, deal again"
    with JavaMember(java_clients, place.bootstrap, scene.group, TOPIC, ANY_SEAT) as member:
        wait_until(lambda: len(member.assigned()) == PARTITIONS, "all partitions held")
        scene.probe.wait_stable(1)
        sequence = scene.probe.wait_told()["sequence"]

        member.enforce_rebalance(text)

        wait_until(
            lambda: any(
                record["outcome"] == "stable" for record in scene.probe.records(after=sequence)
            ),
            "the rebalance to be over",
        )
        (record,) = scene.probe.records(after=sequence)
    trigger = record["trigger"]
    # It now owns partitions, says so in its metadata, and is not taken for a leader that only asks.
    assert (trigger["kind"], trigger["reason_text"]) == ("protocols_changed", text)
    # The subscription is the same, and the text is none of those that the client itself writes.
    assert (trigger["reason"], trigger["reason_source"]) == ("ENFORCED", "text")
