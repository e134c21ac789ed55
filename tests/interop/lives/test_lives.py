"""Checks the advice: one script of life, lived by other people's clients under each setting."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.lives.fidelity import (
    Recording,
    TooBusyError,
    hold,
    hold_consumers,
    recordings,
    table,
)
from tests.interop.lives.life import (
    QUICK_S,
    SLOW_S,
    Life,
    Way,
    consumer_ways_of,
    live,
    save,
    ways_of,
)
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import admin_client, create_topics

TOPIC = "orders"
PARTITIONS = 12
LIVES = 2
"""Lives lived each way, since chance has its say in one: of three seconds stopped, half a second is
when heartbeats happen to fall."""
AT_A_TIME = {"librdkafka": 10, "aiokafka": 6, "mixed": 6, "java": 2}
"""A life has as many processes as are started in it; JVMs want the machine."""


@dataclass(frozen=True)
class Place:
    """Where the lives are lived."""

    bootstrap: str
    http: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    port = free_port()
    settings = {
        "kohort.metrics.port": str(port),
        "group.initial.rebalance.delay.ms": "3000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    with KohortServer(tmp_path_factory.mktemp("lives"), overrides=settings) as server:
        admin = admin_client(server.bootstrap)
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        create_topics(admin, topic)
        yield Place(server.bootstrap, f"http://127.0.0.1:{port}")


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("library", list(AT_A_TIME))
def test_what_is_predicted_of_a_life_is_how_it_is_lived(
    place: Place, library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [way for slow_s in (QUICK_S, SLOW_S) for way in ways_of(library, slow_s)]
    live_and_hold(place, library, library, ways, tmp_path, capsys, hold)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_consumer_groups_are_lived_as_predicted(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [way for slow_s in (QUICK_S, SLOW_S) for way in consumer_ways_of(slow_s)]
    live_and_hold(place, "librdkafka", "consumers", ways, tmp_path, capsys, hold_consumers)


def live_and_hold(
    place: Place,
    library: str,
    name: str,
    ways: list[Way],
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    hold_all: Callable[[Sequence[Recording]], None],
) -> None:
    """Live each way LIVES times in groups named `name`-..., and hold the predictions against it;
    skip the test if the machine was too busy.
    """
    lives = [
        Life(library, way, place.bootstrap, TOPIC, place.http, f"{name}-{index}-{number}")
        for index, way in enumerate(ways)
        for number in range(LIVES)
    ]
    for start in range(0, len(lives), AT_A_TIME[library]):
        live(lives[start : start + AT_A_TIME[library]])
    kept = directory / f"{name}.json.gz"
    save(lives, kept)
    found = list(recordings(lives))
    with capsys.disabled():
        print(f"\n{table(library, found)}\n  the lives: {kept}")
    try:
        hold_all(found)
    except TooBusyError as error:
        pytest.skip(str(error))
