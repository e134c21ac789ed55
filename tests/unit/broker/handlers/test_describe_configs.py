"""DescribeConfigs tells what Kafka tells, of topics and of this broker."""

from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support import messages as m
from tests.support.brokers.running_topics import ask, running_topics

TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16


def asking(
    kind: int, name: str, keys: list[str] | None = None, **include: bool
) -> m.DescribeConfigsRequest:
    resource = m.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return m.DescribeConfigsRequest(resources=[resource], **include)


def values(result: m.DescribeConfigsResult) -> dict[str, str | None]:
    return {config.name: config.value for config in result.configs}


async def test_nothing_is_said_that_was_not_asked_for(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        (result,) = (await ask(topics, asking(TOPIC, "orders", ["flush.ms", "no"]))).results
        assert values(result) == {"flush.ms": "9223372036854775807"}
        assert result.configs[0].synonyms == []
        assert result.configs[0].documentation is None
        no_keys: tuple[list[str] | None, ...] = (None, [])
        for keys in no_keys:
            (result,) = (await ask(topics, asking(TOPIC, "orders", keys))).results
            assert len(result.configs) == 37


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        (TOPIC, "no way", ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "expected 1 or empty string, but received 2"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER, "--1", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: --1"),
        (BROKER, "1" * 5_000, ErrorCode.INVALID_REQUEST, "Broker id must be an integer"),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST, "expected 1 but received 2"),
    ],
)
async def test_what_is_not_there_is_refused(
    tmp_path: Path, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    async with running_topics(tmp_path) as topics:
        (result,) = (await ask(topics, asking(kind, name))).results
        assert result.error_code == code
        assert message in result.error_message
        assert (result.resource_type, result.resource_name, result.configs) == (kind, name, [])


async def test_a_type_that_there_is_not_fails_the_request(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        request = asking(BROKER, "1")
        request.resources += asking(99, "x").resources
        with pytest.raises(KafkaError, match="Unknown resource type 99") as failed:
            await ask(topics, request)
        assert failed.value.code == ErrorCode.INVALID_REQUEST


async def test_the_broker_describes_its_settings(tmp_path: Path) -> None:
    async with running_topics(tmp_path, "num.partitions=3") as topics:
        request = asking(BROKER, "1", ["num.partitions", "log.retention.ms"], include_synonyms=True)
        (result,) = (await ask(topics, request)).results
        configs = {config.name: config for config in result.configs}
        partitions, retention = configs["num.partitions"], configs["log.retention.ms"]
        assert (partitions.value, partitions.read_only, partitions.config_source) == ("3", True, 4)
        assert [(one.value, one.source) for one in partitions.synonyms] == [("3", 4), ("1", 5)]
        assert (retention.value, retention.read_only, retention.synonyms) == (None, False, [])


async def test_the_brokers_as_a_whole_have_what_was_set_for_all(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.alter_broker("", lambda before: {**before, "log.retention.ms": "5"})
        (result,) = (await ask(topics, asking(BROKER, ""))).results
        assert [(one.name, one.value, one.config_source) for one in result.configs] == [
            ("min.insync.replicas", "1", 3),
            ("log.retention.ms", "5", 3),
        ]


async def test_loggers_are_described_and_of_other_kinds_there_is_nothing(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        (result,) = (await ask(topics, asking(LOGGER, "1"))).results
        assert [one.name for one in result.configs] == ["root"]
        (result,) = (await ask(topics, asking(CLIENT_METRICS, "any"))).results
        assert (result.error_code, result.configs) == (ErrorCode.NONE, [])


async def test_what_is_asked_of_each_topic_is_told_of_it(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("a", partition_count=1)
        await topics.changes.create_topic("b", partition_count=1)
        request = asking(TOPIC, "a", ["flush.ms"])
        request.resources += asking(TOPIC, "b", ["retention.ms"]).resources
        request.resources += asking(TOPIC, "a").resources
        answer = await ask(topics, request)
        assert [len(values(result)) for result in answer.results] == [1, 1, 37]
        assert set(values(answer.results[1])) == {"retention.ms"}
