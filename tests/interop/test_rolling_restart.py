"""Ten consumers of four client libraries in one group. Each of them is restarted in turn; in the
short form one of each library.

Static members (KIP-345) do not disturb anybody. Dynamic ones do, twice each, and the history tells
every time who it was and why.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.conftest import BuildClient
from tests.interop.streams import Stream, check_order, streaming, wait_until_all_read
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.model import Client, Member, Seat
from tests.support.groups.group_probe import GroupProbe
from tests.support.waiting import wait_until

PARTITIONS = 20
TOPIC = "rolling"
GROUP = "rolled"
LIBRARIES = ("aiokafka", "confluent", "java", "kafka-python") * 2 + ("confluent", "aiokafka")
"""All of them support static membership."""


@pytest.fixture
def http_port(own_broker_kind: type[KafkaServer | KohortServer]) -> int | None:
    return free_port() if own_broker_kind is KohortServer else None


@pytest.fixture
def broker(
    tmp_path: Path,
    own_broker_kind: type[KafkaServer | KohortServer],
    http_port: int | None,
) -> Iterator[ServerProcess]:
    overrides = {"kohort.metrics.port": str(http_port)} if http_port else {}
    with own_broker_kind(tmp_path, overrides=overrides) as server:
        admin = admin_client(server.bootstrap)
        create_topics(admin, NewTopic(TOPIC, PARTITIONS, 1))
        yield server


@pytest.fixture
def probe(broker: ServerProcess, http_port: int | None) -> GroupProbe:
    return GroupProbe(broker.port, GROUP, http_port)


class Members:
    """The ten, each in a seat of its own; who has been restarted keeps what it had read."""

    def __init__(
        self, stack: ExitStack, clients: list[Client], probe: GroupProbe, *, is_static: bool
    ) -> None:
        self._stack = stack
        self._clients = clients
        self._probe = probe
        self.seats = [
            Seat(
                client_id=f"{number}-{client.name}", instance_id=f"i{number}" if is_static else None
            )
            for number, client in enumerate(clients)
        ]
        self.now = [self._join(number) for number in range(len(clients))]
        self.ever: list[Member] = list(self.now)

    def _join(self, number: int) -> Member:
        client = self._clients[number]
        return self._stack.enter_context(client.join(GROUP, TOPIC, self.seats[number]))

    def stop(self, number: int) -> None:
        self.now[number].leave()

    def start(self, number: int) -> None:
        self.now[number] = self._join(number)
        self.ever.append(self.now[number])

    def wait_shared(self, *, without: int | None = None) -> None:
        """Until all partitions are held, each by one, and everybody has some."""
        members = [member for number, member in enumerate(self.now) if number != without]

        def is_so() -> bool:
            held = [member.assigned() for member in members]
            return (
                all(held)
                and sum(map(len, held)) == PARTITIONS
                and set().union(*held) == set(range(PARTITIONS))
            )

        wait_until(is_so, lambda: f"{[member.assigned() for member in members]}")
        self._probe.wait_stable(len(members))


def check_each_read_once(stream: Stream, crew: Members) -> None:
    """Everybody commits before a stop, so that at-least-once permits nothing twice."""
    stream.stop()
    wait_until_all_read(stream, crew.ever)
    read = Counter(record.value for member in crew.ever for record in member.records())
    lost = [value for value in stream.sent if not read[value]]
    twice = [value for value, count in read.items() if count > 1]
    assert (lost, twice) == ([], [])
    for member in crew.ever:
        check_order(member.records())


@pytest.fixture
def clients(broker: ServerProcess, build_client: BuildClient) -> list[Client]:
    by_name = {name: build_client(name, broker.bootstrap) for name in set(LIBRARIES)}
    return [by_name[name] for name in LIBRARIES]


@pytest.fixture
def restarts(*, long_form: bool) -> int:
    """How many of them are restarted. The first four are of different libraries."""
    return len(LIBRARIES) if long_form else len(set(LIBRARIES))


def test_a_rolling_restart_of_static_members_rebalances_nothing(
    clients: list[Client], probe: GroupProbe, restarts: int
) -> None:
    with ExitStack() as stack, streaming(clients[1], TOPIC, PARTITIONS) as stream:
        crew = Members(stack, clients, probe, is_static=True)
        crew.wait_shared()
        before = probe.generation()
        sequence = probe.wait_told()["sequence"] if probe.has_history else 0
        held = [member.assigned() for member in crew.now]

        for number in range(restarts):
            crew.stop(number)
            crew.start(number)
            crew.wait_shared()

        assert probe.generation() == before
        assert [member.assigned() for member in crew.now] == held
        if probe.has_history:
            news = probe.wait_records(restarts, after=sequence)
            assert {record["kind"] for record in news} == {"avoided"}
            stated = [record["trigger"]["instance_id"] for record in news]
            assert stated == [seat.instance_id for seat in crew.seats[:restarts]]
        check_each_read_once(stream, crew)


@pytest.mark.long
def test_a_rolling_restart_of_dynamic_members_is_explained_step_by_step(
    clients: list[Client], probe: GroupProbe, restarts: int
) -> None:
    with ExitStack() as stack, streaming(clients[1], TOPIC, PARTITIONS) as stream:
        crew = Members(stack, clients, probe, is_static=False)
        crew.wait_shared()
        before = probe.generation()
        sequence = probe.wait_told()["sequence"] if probe.has_history else 0

        for number in range(restarts):
            crew.stop(number)
            crew.wait_shared(without=number)
            crew.start(number)
            crew.wait_shared()

        assert probe.generation() == before + 2 * restarts
        if probe.has_history:
            probe.wait_records(2 * restarts, after=sequence)
            assert probe.causes(after=sequence) == [
                (kind, seat.client_id)
                for seat in crew.seats[:restarts]
                for kind in ("member_left", "member_added")
            ]
        check_each_read_once(stream, crew)
