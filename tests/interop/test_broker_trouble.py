"""A broker that dies in the middle of a rebalance, or goes and comes back under a settled group."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.interop.trouble import LONG_SESSION_MS, Scene, Troop, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

FOUR = ("confluent", "java", "aiokafka", "kafka-python")
TEN = ("confluent", "java", "aiokafka", "confluent", "kafka-python") * 2


@pytest.fixture
def stage(tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]) -> Iterator[Scene]:
    with scene(tmp_path, own_broker_kind) as stage:
        yield stage


@pytest.fixture
def troop(stage: Scene) -> Iterator[Troop]:
    with stage.troop() as troop:
        yield troop


def check_generations_grow(troop: Troop) -> None:
    """Generations that came to be grow. A generation that the broker died in may come again: no
    member had an assignment of it.
    """
    reached = [
        record["generation"] for record in troop.probe.records() if record["outcome"] == "stable"
    ]
    assert reached == sorted(set(reached)), reached


def test_a_broker_that_is_killed_amid_a_rebalance_goes_on_with_the_group(
    stage: Scene, troop: Troop
) -> None:
    with troop.streaming():
        sleeper, *_others = troop.start(FOUR, session_timeout_ms=LONG_SESSION_MS)
        troop.wait_shared()
        before = troop.probe.generation()

        # The join phase waits for who sleeps, so the broker dies in it and not around it.
        troop.now[sleeper].pause()
        troop.start(["confluent"], session_timeout_ms=LONG_SESSION_MS)
        wait_until(
            lambda: troop.probe.describe().group_state == "PreparingRebalance", "a rebalance"
        )
        stage.server.kill()
        troop.now[sleeper].resume()
        stage.server.start()
        troop.wait_shared()

        assert troop.probe.generation() > before
        if troop.probe.has_history:
            print(troop.probe.why())
            check_generations_grow(troop)
            cut_short = [
                record for record in troop.probe.records() if record["outcome"] == "unfinished"
            ]
            assert all(record["trigger"]["kind"] == "member_added" for record in cut_short)


def test_a_group_outlives_ten_kills_of_its_broker_at_any_moment_of_a_rebalance(
    stage: Scene, troop: Troop
) -> None:
    with troop.streaming():
        troop.start(FOUR, session_timeout_ms=LONG_SESSION_MS)
        troop.wait_shared()
        for number in range(10):
            before = troop.probe.generation()
            (guest,) = troop.start(["confluent"], session_timeout_ms=LONG_SESSION_MS)
            # Another moment each time, from its first join to the assignment.
            time.sleep(0.15 * number)
            stage.server.kill()
            stage.server.start()
            troop.wait_shared()
            assert troop.probe.generation() >= before
            troop.leave(guest)
            troop.wait_shared()
        if troop.probe.has_history:
            print(troop.probe.why())
            check_generations_grow(troop)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_under_a_settled_group_of_ten_rebalances_nothing(
    stage: Scene, troop: Troop, ending: Literal["stop", "kill"]
) -> None:
    with troop.streaming() as stream:
        troop.start(TEN, session_timeout_ms=LONG_SESSION_MS)
        troop.wait_shared()
        before, generation = troop.last_sequence(), troop.probe.generation()

        if ending == "kill":
            stage.server.kill()
        else:
            assert stage.server.stop() == stage.server.clean_exit
        stage.server.start()
        sent = len(stream.sent)
        wait_until(lambda: len(stream.sent) > sent, "the stream to go on")
        troop.wait_shared()

        assert troop.probe.generation() == generation
        troop.check_told(before, [])
