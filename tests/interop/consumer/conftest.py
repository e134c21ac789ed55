"""Kohort's consumer on either broker: every test here runs on a Kohort and on a real Kafka.

In the short form, only the modules in `ALSO_ON_KAFKA` run on Kafka.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.consumer.members import Members, Topics
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess

BROKERS: dict[str, type[ServerProcess]] = {"kohort": KohortServer, "kafka": KafkaServer}
OVERRIDES = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    # A Kafka makes 50 of each when the first one asks, which waits for seconds meanwhile.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}

ALSO_ON_KAFKA: Final = {
    "test_commits.py",
    "test_consumer_protocol.py",
    "test_reading.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            callspec = getattr(item, "callspec", None)
            kind = callspec.params.get("any_broker") if callspec else None
            if kind == "kafka" and item.path.name not in ALSO_ON_KAFKA:
                item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", params=BROKERS)
def any_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Each of the two in turn."""
    kind: Any = BROKERS[request.param]
    with kind(tmp_path_factory.mktemp(request.param), overrides=OVERRIDES) as server:
        yield server


@pytest.fixture(scope="session")
def bootstrap(any_broker: ServerProcess) -> str:
    return any_broker.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Iterator[Topics]:
    """Creates topics and fills them."""
    topics = Topics(bootstrap)
    yield topics
    topics.delete_all()


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return f"consumer-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def members(bootstrap: str, group: str) -> AsyncIterator[Members]:
    """Makes consumers, and closes them after the test."""
    async with Members(bootstrap, group) as members:
        yield members
