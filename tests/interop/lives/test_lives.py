"""Does the advice hold? One script of life, lived by other people's clients under each setting."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.lives.fidelity import cells, disorder, table
from tests.interop.lives.life import WAYS, Life, Way, live
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import admin_client, create_topics

TOPIC = "orders"
PARTITIONS = 12
LIVES = 2
"""Lives lived each way, since chance has its say in one."""
AT_A_TIME = {"librdkafka": 5, "aiokafka": 4, "java": 1}
"""A life has four processes, and as many that wait to be started; JVMs want the machine."""
TRUE_LEAST = 0.8


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
        "group.initial.rebalance.delay.ms": "1000",
    }
    with KohortServer(tmp_path_factory.mktemp("lives"), overrides=settings) as server:
        admin = admin_client(server.bootstrap)
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        create_topics(admin, topic)
        yield Place(server.bootstrap, f"http://127.0.0.1:{port}")


def ways_of(library: str) -> list[Way]:
    """Aiokafka has no cooperative assignor."""
    return [way for way in WAYS if library != "aiokafka" or not way.cooperative]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("library", ["librdkafka", "aiokafka", "java"])
def test_what_is_predicted_of_a_life_is_how_it_is_lived(
    place: Place, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = [
        Life(library, way, place.bootstrap, TOPIC, place.http, f"{library}-{number}-{index}")
        for number in range(LIVES)
        for index, way in enumerate(ways_of(library))
    ]
    for start in range(0, len(lives), AT_A_TIME[library]):
        live(lives[start : start + AT_A_TIME[library]])
    found = list(cells(lives))
    with capsys.disabled():
        print(f"\n{table(library, found)}")

    steady = [one for one in found if one.is_steady]
    if len(steady) < len(found) / 2:
        pytest.skip("the machine was too busy for the same life to be lived twice")
    ranked = [one for one in steady if one.doubt is None]
    assert sum(one.is_counted for one in ranked) >= TRUE_LEAST * len(ranked)
    assert sum(one.is_counted and one.is_close for one in ranked) >= TRUE_LEAST * len(ranked)
    assert disorder(found) == []
