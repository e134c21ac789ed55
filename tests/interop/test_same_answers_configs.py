"""Configs are described, and changed at run time or not, as in Kafka."""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from kohort.protocol.messages import alter_configs as replacing
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from kohort.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.interop.conftest import start_twins
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair, Twins, opened
from tests.interop.same_answers.scenes import create_topic, fresh_name
from tests.support import messages as m

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND = 0, 1, 2
DEFAULT: Final = 5

AT_START_ONLY: Final = {
    "listeners",
    "listener.security.protocol.map",
    "cordoned.log.dirs",
    "sasl.enabled.mechanisms",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
}
"""Described as read-only here: broker/config/run_time.py says why, or security.py."""
OF_THE_AUTHORIZER: Final = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka does not describe them, as its authorizer takes them from the file itself."""
OTHER_DEFAULTS: Final = {
    "node.id",
    "controller.listener.names",
    "log.dir",
    "listeners",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "queued.max.request.bytes",
    # Java's own format is not read here.
    "ssl.keystore.type",
    "ssl.truststore.type",
}
"""See tests/unit/broker/config/test_kafka_parity.py."""


def describing(kind: int, name: str, *keys: str) -> m.DescribeConfigsRequest:
    resource = m.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return m.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False
    )


def changing(broker: str, operation: int, name: str, value: str | None) -> Value:
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[config])
    return m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def by_name(answer: Value) -> dict[str, m.DescribeConfigsResourceResult]:
    assert isinstance(answer, m.DescribeConfigsResponse)
    return {one.name: one for one in answer.results[0].configs}


def default_of(entry: m.DescribeConfigsResourceResult) -> str | None:
    return next((one.value for one in entry.synonyms if one.source == DEFAULT), None)


def test_every_broker_setting_that_kafka_describes_is_described_alike(pair: Pair) -> None:
    answers = pair.peek(describing(BROKER, "1"), 4)
    theirs, ours = by_name(answers.kafka), by_name(answers.kohort)
    assert theirs.keys() - ours.keys() == set()
    # Kafka describes every setting in its properties file, including those that it does not know.
    theirs = {name: entry for name, entry in theirs.items() if not name.startswith("kohort.")}
    if not pair.are_both_kafka:
        own_alone = {name for name in ours if not name.startswith("kohort.")} - theirs.keys()
        assert own_alone == OF_THE_AUTHORIZER
        at_start = {name for name in theirs if ours[name].read_only and not theirs[name].read_only}
        assert at_start == AT_START_ONLY
    others = {name for name in theirs if default_of(ours[name]) != default_of(theirs[name])}
    assert others <= OTHER_DEFAULTS
    for name, entry in theirs.items():
        own = ours[name]
        assert own.config_type == entry.config_type, name
        assert own.is_sensitive == entry.is_sensitive, name
        if name not in AT_START_ONLY:
            assert own.read_only == entry.read_only, name


def test_a_topic_on_which_nothing_is_set_is_described_alike(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in range(1, 5):
        pair.ask(describing(TOPIC, topic.name), version)
        pair.ask(describing(TOPIC, topic.name, "min.insync.replicas", "retention.ms"), version)


CHANGES: Final[dict[str, list[str | None]]] = {
    "log.cleaner.backoff.ms": ["15001", "-1", "x", None],
    "log.cleaner.dedupe.buffer.size": ["9000000", "0"],
    "log.cleaner.threads": ["2", "9", "0"],
    "max.connections": ["5", "0", "-1"],
    "max.connections.per.ip": ["1", "0", "-1"],
    "max.connections.per.ip.overrides": ["127.0.0.1:5", "nonsense"],
    "max.connection.creation.rate": ["5", "0"],
    "producer.id.expiration.ms": ["1000", "0"],
    "num.io.threads": ["9", "16", "17", "3", "0"],
    "background.threads": ["5", "4"],
    "num.replica.fetchers": ["2", "3"],
    "sasl.kerberos.min.time.before.relogin": ["58000", "x"],
    "sasl.jaas.config": ["x"],
    "ssl.keystore.location": ["/x"],
    "ssl.client.auth": ["required", "maybe"],
    "leader.replication.throttled.rate": ["100", "-1"],
    "min.insync.replicas": ["1", "2", "0"],
    "node.id": ["2"],
    "advertised.listeners": ["PLAINTEXT://127.0.0.1:1"],
    "log.retention.ms": ["1", "-1", "0"],
    "log.retention.hours": ["1"],
    "log.local.retention.ms": ["1", "99999999999", "-1", "-2"],
    "log.segment.bytes": ["1"],
    "message.max.bytes": ["-1", "0"],
    "group.streams.assignment.interval.ms": ["1", "5000000"],
    "group.coordinator.cached.buffer.max.bytes": ["600000", "5"],
    "transaction.partition.verification.enable": ["true", "x"],
}


def test_broker_settings_are_changed_at_run_time_as_in_kafka(pair: Pair) -> None:
    for broker in ("1", ""):
        for name, values in CHANGES.items():
            for value in values:
                pair.ask(changing(broker, SET, name, value), 1)


def test_what_is_set_for_all_brokers_always_is_not_removed(pair: Pair) -> None:
    pair.ask(changing("", DELETE, "min.insync.replicas", None), 1)
    pair.ask(changing("", DELETE, "log.cleaner.backoff.ms", None), 1)
    pair.ask(describing(BROKER, "", "min.insync.replicas"), 4)
    pair.ask(describing(BROKER, "1", "min.insync.replicas"), 4)


SESSION, HEARTBEAT, ASSIGNMENT = GROUP_CONFIGS = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
"""Kafka describes the configs of streams groups and of dead-letter queues as well."""
OF_SHARE_GROUPS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "share.session.timeout.ms": ("44999", "60001", "0", "x", "60000", None),
    "share.heartbeat.interval.ms": ("4999", "15001", "15000"),
    "share.assignment.interval.ms": ("-1", "15001", "0"),
    "share.record.lock.duration.ms": ("999", "14999", "60001", "3600001", "15000"),
    "share.delivery.count.limit": ("1", "2", "11", "26", " 10 "),
    "share.partition.max.record.locks": ("99", "100", "4001", "10001", "4000"),
    "share.auto.offset.reset": (
        "", "none", "EARLIEST", " earliest ", "by_duration", "by_duration:", "by_duration:P",
        "by_duration:PT", "by_duration:P1DT", "by_duration:P1Y", "by_duration:-PT1H",
        "by_duration:PT-0.5S", "by_duration:PT.5S", "by_duration:PT1.0123456789S",
        "by_duration:PT2562047788015216H", "by_duration:PT2562047788015215H", "by_duration:pt1,5s",
        "by_duration:+P-1DT48H", "by_duration:-PT-1H", "by_duration:PT1M-0.5S", "by_duration:PT1.S",
    ),
    "share.isolation.level": ("", "READ_COMMITTED", "read_committed"),
    "share.renew.acknowledge.enable": ("", "no", "FALSE"),
    "share.nope": ("1",),
}  # fmt: skip
GROUP_CHANGES: Final[list[tuple[str, int, str | None]]] = [
    (SESSION, SET, "60000"),
    (SESSION, SET, "60001"),
    (SESSION, SET, "999"),
    (SESSION, SET, "0"),
    (SESSION, SET, "50_000"),
    (SESSION, SET, "99999999999"),
    (SESSION, SET, "5000"),  # The heartbeat interval.
    (SESSION, SET, " 5001 "),
    (HEARTBEAT, SET, "5001"),
    (HEARTBEAT, SET, "4999"),
    (SESSION, SET, None),
    (SESSION, APPEND, "1"),
    (SESSION, DELETE, None),
    (HEARTBEAT, SET, "15000"),
    (ASSIGNMENT, SET, "0"),
    (ASSIGNMENT, SET, "-1"),
    (ASSIGNMENT, SET, "15001"),
    ("retention.ms", SET, "1"),
    ("log.cleanup.policy", APPEND, "delete"),
    ("unknown", DELETE, None),
]


def changing_group(name: str, *configs: tuple[str, int, str | None]) -> Value:
    resource = AlterConfigsResource(
        resource_type=GROUP,
        resource_name=name,
        configs=[
            AlterableConfig(name=config, config_operation=operation, value=value)
            for config, operation, value in configs
        ],
    )
    return m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@pytest.fixture(scope="module")
def with_bounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Twins in which a session timeout can be as short as a heartbeat interval."""
    settings = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.max.session.timeout.ms": "60000",
        "group.consumer.session.timeout.ms": "50000",
    }
    with start_twins(tmp_path_factory.mktemp("bounds"), settings) as twins:
        yield twins


def test_configs_of_groups_are_changed_and_described_as_in_kafka(
    with_bounds: Twins, subtests: pytest.Subtests
) -> None:
    group = fresh_name()

    def change(name: str, *configs: tuple[str, int, str | None]) -> None:
        pair.ask(changing_group(name, *configs), 1)
        pair.ask_until_equal(describing(GROUP, group, *GROUP_CONFIGS), 4)

    with opened(with_bounds, subtests) as pair:
        pair.ask(describing(GROUP, "", *GROUP_CONFIGS), 4)
        change("", (SESSION, SET, "50000"))
        change(group, (SESSION, SET, "6000"), (HEARTBEAT, SET, "6000"))
        for entry in GROUP_CHANGES:
            change(group, entry)
        for configs in ({ASSIGNMENT: "7"}, {SESSION: "4000"}, {"x": "1"}):
            resource = replacing.AlterConfigsResource(
                resource_type=GROUP,
                resource_name=group,
                configs=[
                    replacing.AlterableConfig(name=name, value=value)
                    for name, value in configs.items()
                ],
            )
            pair.ask(replacing.AlterConfigsRequest(resources=[resource], validate_only=False), 2)
            pair.ask_until_equal(describing(GROUP, group, *GROUP_CONFIGS), 4)
        listed = pair.ask_until_equal(ListConfigResourcesRequest(resource_types=[GROUP]), 1).kohort
        assert isinstance(listed, ListConfigResourcesResponse)
        assert [one.resource_name for one in listed.config_resources] == [group]
        change(group, (ASSIGNMENT, DELETE, None))
        pair.ask_until_equal(ListConfigResourcesRequest(resource_types=[GROUP]), 1)


def test_configs_of_share_groups_are_changed_and_described_as_in_kafka(pair: Pair) -> None:
    group = fresh_name()
    described = describing(GROUP, group, *OF_SHARE_GROUPS)
    pair.ask(described, 4)
    for name, values in OF_SHARE_GROUPS.items():
        for value in values:
            pair.ask(changing_group(group, (name, SET, value)), 1)
        pair.ask_until_equal(described, 4)
        pair.ask(changing_group(group, (name, APPEND, "1")), 1)
    for name in OF_SHARE_GROUPS:
        pair.ask(changing_group(group, (name, DELETE, None)), 1)
    pair.ask_until_equal(described, 4)
