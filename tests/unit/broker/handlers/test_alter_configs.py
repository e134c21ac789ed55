"""AlterConfigs and IncrementalAlterConfigs change and refuse what Kafka does."""

from pathlib import Path

import pytest

from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import alter_configs, incremental_alter_configs
from tests.support.brokers.running_topics import ask, running_topics

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

BAD_POLICY = (
    "Invalid value zz for configuration cleanup.policy: String must be one of: compact, delete"
)
BAD_LAG = "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)"

Operation = tuple[str, int, str | None]


def changing(
    kind: int, name: str, *operations: Operation, validate_only: bool = False, times: int = 1
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=config, config_operation=operation, value=value
            )
            for config, operation, value in operations
        ],
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource] * times, validate_only=validate_only
    )


def replacing(
    kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> alter_configs.AlterConfigsRequest:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)


async def answer(
    topics: TopicManager, request: object, version: int | None = None
) -> tuple[int, str | None]:
    (response,) = (await ask(topics, request, version)).responses
    return response.error_code, response.error_message


def overrides(topics: TopicManager) -> dict[str, str]:
    topic = topics.get("orders")
    assert topic is not None
    return dict(topic.overrides)


@pytest.mark.parametrize("version", range(2))
async def test_single_configs_are_changed_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic(
            "orders", partition_count=1, configs={"retention.ms": "5"}
        )
        request = changing(
            TOPIC,
            "orders",
            ("segment.bytes", SET, "2000000"),
            ("retention.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        )
        assert await answer(topics, request, version) == (ErrorCode.NONE, None)
        assert overrides(topics) == {"segment.bytes": "2000000", "cleanup.policy": "delete,compact"}
        assert topic.config.is_compacted
        request = changing(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
        assert await answer(topics, request, version) == (ErrorCode.NONE, None)
        assert topic.config.cleanup_policy == ("compact",)


@pytest.mark.parametrize("version", range(3))
async def test_all_configs_are_replaced_in_every_version(tmp_path: Path, version: int) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic(
            "orders", partition_count=1, configs={"retention.ms": "5"}
        )
        request = replacing(TOPIC, "orders", ("segment.bytes", "2000000"))
        assert await answer(topics, request, version) == (ErrorCode.NONE, None)
        assert overrides(topics) == {"segment.bytes": "2000000"}
        assert (await answer(topics, replacing(TOPIC, "orders"), version))[0] == ErrorCode.NONE
        assert overrides(topics) == {}


async def test_a_resource_has_a_limited_number_of_configs(tmp_path: Path) -> None:
    names = [f"config-{number}" for number in range(1_001)]
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        for request in (
            replacing(TOPIC, "orders", *((name, "1") for name in names)),
            changing(TOPIC, "orders", *((name, SET, "1") for name in names)),
        ):
            assert await answer(topics, request) == (
                ErrorCode.INVALID_REQUEST,
                "More than 1000 configs of one resource.",
            )


# Codes and messages are those of a running Kafka 4.4.0, but for the unknown operation.
@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        (
            [("retention.ms", SET, "z"), ("segment.bytes", SET, "3000000")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value z for configuration retention.ms: Not a number of type LONG",
        ),
        ([("nope", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            [("retention.ms", APPEND, "5")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("cleanup.policy", APPEND, "zz")],
            ErrorCode.INVALID_CONFIG,
            BAD_POLICY,
        ),
        (
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST, "Unknown config operation 9"),
        (
            [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")],
            ErrorCode.INVALID_CONFIG,
            BAD_LAG,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else None,
)
async def test_a_change_that_cannot_be_changes_nothing(
    tmp_path: Path, operations: list[Operation], code: ErrorCode, message: str
) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1, configs={"flush.ms": "5"})
        request = changing(TOPIC, "orders", *operations)
        assert await answer(topics, request) == (code, message)
        assert overrides(topics) == {"flush.ms": "5"}


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (
            TOPIC,
            "none",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'none' does not exist.",
        ),
        (TOPIC, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            BROKER,
            "7",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received",
        ),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
async def test_resources_that_are_not_there_are_refused(
    tmp_path: Path, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    async with running_topics(tmp_path) as topics:
        for request in (
            changing(kind, name, ("log.retention.ms", SET, "5")),
            replacing(kind, name, ("log.retention.ms", "5")),
        ):
            answered, text = await answer(topics, request)
            assert answered == code
            assert message in str(text)


async def test_configs_of_loggers_cannot_be_set(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        code, message = await answer(topics, changing(LOGGER, "1", ("root", SET, "DEBUG")))
        assert code == ErrorCode.INVALID_REQUEST
        assert "cannot be set on this broker" in str(message)


async def test_configs_of_a_group_survive_a_restart_until_they_are_deleted(tmp_path: Path) -> None:
    name = "consumer.session.timeout.ms"
    async with running_topics(tmp_path) as topics:
        assert (await answer(topics, changing(GROUP, "g", (name, SET, "50000"))))[0] == 0
    async with running_topics(tmp_path) as topics:
        assert topics.settings.groups == {"g": {name: "50000"}}
        assert (await answer(topics, changing(GROUP, "g", (name, DELETE, None))))[0] == 0
    async with running_topics(tmp_path) as topics:
        assert topics.settings.groups == {}


async def test_a_resource_may_be_named_once(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        request = changing(TOPIC, "orders", ("flush.ms", SET, "5"), times=2)
        responses = (await ask(topics, request)).responses
        assert [(one.error_code, one.error_message) for one in responses] == [
            (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        ] * 2
        assert overrides(topics) == {}


async def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        request = changing(TOPIC, "orders", ("flush.ms", SET, "5"), validate_only=True)
        assert await answer(topics, request) == (ErrorCode.NONE, None)
        request_for_all = replacing(TOPIC, "orders", ("flush.ms", "5"), validate_only=True)
        assert await answer(topics, request_for_all) == (ErrorCode.NONE, None)
        assert overrides(topics) == {}


async def test_settings_of_the_broker_change_for_it_or_for_all(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        for broker, value in (("", 7), ("1", 9)):
            request = changing(BROKER, broker, ("log.retention.ms", SET, str(value)))
            assert await answer(topics, request) == (ErrorCode.NONE, None)
            assert topic.config.retention_ms == value
        request = changing(BROKER, "1", ("log.retention.ms", DELETE, None))
        assert await answer(topics, request) == (ErrorCode.NONE, None)
        assert topic.config.retention_ms == 7
