"""The broker under test, topics to use up, and the client libraries.

The tests are about Kafka's behaviour, not Kohort's: with BOOTSTRAP=host:port in the environment
they run against that broker. Else a Kohort is started for the session.
"""

import gc
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.same_answers import scenes
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.offsets import commit
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair, Twins, opened, wait_ready
from tests.interop.same_answers.scenes import Topic
from tests.interop.same_answers.secured import start_secured
from tests.interop.same_answers.transactions import Producer, producer
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.java_client import JavaClient
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.model import Client
from tests.support.processes.java_process import JavaProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets client libraries leave sockets to the garbage collector, as kafka-python does."""
    here = Path(__file__).parent
    ignore = "ignore::pytest.PytestUnraisableExceptionWarning"
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.filterwarnings(ignore))


CLIENT_NAMES = ("aiokafka", "confluent", "kafka-python", "java")

CreateTopic = Callable[..., str]
ClientNamed = Callable[[str], Client]
BuildClient = Callable[[str, str], Client]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test."""
    if given := os.environ.get("BOOTSTRAP"):
        yield given
        return
    with KohortServer(tmp_path_factory.mktemp("kohort")) as server:
        yield server.bootstrap


@pytest.fixture(autouse=True)
def leave_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects what a client library dropped now, so that no other test is blamed for it."""
    yield
    if "pair" not in request.fixturenames:  # Those use none.
        gc.collect()


@pytest.fixture(scope="session")
def own_broker_kind() -> type[KafkaServer | KohortServer]:
    """What a test starts that needs a broker of its own.

    A Kohort; where the others run against a given broker, a real Kafka takes its place.
    """
    return KafkaServer if os.environ.get("BOOTSTRAP") else KohortServer


@pytest.fixture
def own_broker(
    tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]
) -> Iterator[ServerProcess]:
    """A broker of the test's own, started, which it may stop, kill and look into."""
    with own_broker_kind(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return admin_client(bootstrap)


@pytest.fixture
def create_topic(admin: AdminClient) -> Iterator[CreateTopic]:
    """Creates a topic under a name of its own, and deletes it after the test."""
    created: list[str] = []

    def create(partitions: int = 1, **config: str) -> str:
        name = f"interop-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        create_topics(admin, topic)
        created.append(name)
        return name

    yield create
    if created:
        for future in admin.delete_topics(created).values():
            future.exception(30)


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    """A topic with one partition."""
    return create_topic()


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return f"interop-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def java_clients() -> Iterator[JavaProcess]:
    with JavaProcess("ClientDriver", "broker") as process:
        yield process


@pytest.fixture(scope="session")
def tool_process() -> Iterator[JavaProcess]:
    with JavaProcess("ToolRunner", "tools") as process:
        yield process


@pytest.fixture
def build_client(request: pytest.FixtureRequest) -> BuildClient:
    """A client library by its name, for any broker; the test is skipped where it is missing."""

    def build(name: str, bootstrap: str) -> Client:
        match name:
            case "aiokafka":
                return AiokafkaClient(bootstrap)
            case "confluent":
                return ConfluentClient(bootstrap)
            case "kafka-python":
                return KafkaPythonClient(bootstrap)
            case _:
                return JavaClient(bootstrap, request.getfixturevalue("java_clients"))

    return build


@contextmanager
def start_twins(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Twins]:
    """A real Kafka and a Kohort with the same settings, to be asked the same.

    Where the other tests run against a given broker this is Kafka twice, which shows that nothing
    is compared that may differ from one Kafka to the next.
    """
    kind = KafkaServer if os.environ.get("BOOTSTRAP") else KohortServer
    overrides = {**TWIN_SETTINGS, **(settings or {})}
    with (
        KafkaServer(directory / "kafka", overrides=overrides) as kafka,
        kind(directory / "kohort", overrides=overrides) as kohort,
    ):
        wait_ready(kafka)
        yield Twins(kafka, kohort)


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """The twins that most tests ask."""
    with start_twins(tmp_path_factory.mktemp("twins")) as twins:
        yield twins


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Twins with an authorizer, for the tests of rights."""
    with start_secured(tmp_path_factory.mktemp("secured")) as twins:
        yield twins


@pytest.fixture
def pair(twins: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    """Both brokers, on connections of the test's own."""

    with opened(twins, subtests) as pair:
        yield pair


@pytest.fixture(scope="session")
def group_topic(twins: Twins) -> Topic:
    """A topic of three partitions that both have, for groups to commit to."""
    with Pair(twins, lambda name, text: pytest.fail(f"{name}: {text}")) as pair:
        return scenes.create_topic(pair, partitions=3)


@pytest.fixture(scope="module")
def transaction_topic(twins: Twins) -> Topic:
    """A topic of three partitions that both have, for transactions. Tests read all of it: those of
    one module are enough."""
    with Pair(twins, lambda name, text: pytest.fail(f"{name}: {text}")) as pair:
        # Kafka creates the coordinators' topics on their first use.
        group = Group(pair)
        producer(pair)
        topic = scenes.create_topic(pair, partitions=3)
        commit(group, topic, 0)
        return topic


@pytest.fixture
def some_id(pair: Pair, transaction_topic: Topic) -> Producer:
    """A transactional id in state Empty."""
    del transaction_topic
    return producer(pair)


@pytest.fixture
def client_named(bootstrap: str, build_client: BuildClient) -> ClientNamed:
    """A client library by its name, for the broker under test."""
    return lambda name: build_client(name, bootstrap)


few_clients = pytest.mark.parametrize(
    "client",
    [
        pytest.param(name, marks=() if name in {"confluent", "java"} else pytest.mark.long)
        for name in CLIENT_NAMES
    ],
    indirect=True,
)
"""For tests whose short form takes two of them."""


@pytest.fixture(params=CLIENT_NAMES)
def client(request: pytest.FixtureRequest, client_named: ClientNamed) -> Client:
    """Each client library in turn."""
    return client_named(request.param)
