"""Members that are killed, paused, cut off or doubled, and what the broker's history says of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop.trouble import Scene, Troop, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.network.lossy_proxy import LossyProxy
from tests.support.waiting import wait_until

LIBRARIES = ("confluent", "java", "aiokafka")


@dataclass(frozen=True, slots=True)
class Stage:
    scene: Scene
    proxy: LossyProxy
    """Which everybody goes through."""


def each_library(*, always: str) -> pytest.MarkDecorator:
    """Take each library as the victim; at most one of them in `make test` too."""
    return pytest.mark.parametrize(
        "victim_library",
        [
            pytest.param(name, marks=() if name == always else pytest.mark.long)
            for name in (*LIBRARIES, "kafka-python")
        ],
    )


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
    own_broker_kind: type[KafkaServer | KohortServer],
) -> Iterator[Stage]:
    port = free_port()
    with (
        scene(tmp_path_factory.mktemp("trouble"), own_broker_kind, proxy_port=port) as behind,
        LossyProxy(port, behind.server.port) as proxy,
    ):
        yield Stage(behind, proxy)


@pytest.fixture
def troop(stage: Stage) -> Iterator[Troop]:
    with stage.scene.troop() as troop:
        yield troop


@each_library(always="confluent")
def test_a_member_that_is_killed_is_missed_when_its_session_ends(
    troop: Troop, victim_library: str
) -> None:
    with troop.streaming():
        victim, *_others = troop.start([victim_library, *LIBRARIES[:2]])
        troop.wait_shared()
        before = troop.last_sequence()

        troop.kill(victim)
        troop.wait_shared()

        troop.check_told(before, [("session_expired", victim)])


@each_library(always="")
def test_a_member_that_is_paused_for_longer_than_its_session_comes_back_as_a_new_one(
    troop: Troop, victim_library: str
) -> None:
    with troop.streaming():
        victim, *_others = troop.start([victim_library, *LIBRARIES[:2]])
        troop.wait_shared()
        before = troop.last_sequence()

        troop.now[victim].pause()
        troop.wait_shared(without=victim)
        troop.check_told(before, [("session_expired", victim)])
        troop.now[victim].resume()
        troop.wait_shared()

        troop.check_told(before, [("session_expired", victim), ("member_added", victim)])


@each_library(always="")
def test_a_member_that_is_cut_off_from_the_network_comes_back_as_a_new_one(
    stage: Stage, troop: Troop, victim_library: str
) -> None:
    with troop.streaming():
        victim, *_others = troop.start([victim_library, *LIBRARIES[:2]])
        troop.wait_shared()
        before = troop.last_sequence()

        with stage.proxy.cut_off(victim):
            troop.wait_shared(without=victim)
            troop.check_told(before, [("session_expired", victim)])
        troop.wait_shared()

        troop.check_told(before, [("session_expired", victim), ("member_added", victim)])


@pytest.mark.parametrize("library", [pytest.param("java", marks=pytest.mark.long), "confluent"])
def test_of_two_processes_with_one_instance_id_the_later_one_stays(
    troop: Troop, library: str
) -> None:
    with troop.streaming():
        (bystander,) = troop.start(["confluent"])
        (earlier,) = troop.start([library], instance_id="seat")
        troop.wait_shared()
        before, generation = troop.last_sequence(), troop.probe.generation()

        (later,) = troop.start([library], instance_id="seat")
        wait_until(lambda: bool(troop.now[later].member.assigned()), "the later one to be let in")
        fenced = troop.wait_failed(earlier)

        assert "fenced" in str(fenced).lower()
        troop.wait_shared()
        assert troop.probe.generation() == generation
        assert bystander in troop.now
        troop.check_told(before, [("static_replaced", later), ("instance_fenced", later)])
