"""Settings take the values that Kafka takes and refuse the others in Kafka's words."""

import dataclasses

import pytest

from kohort.broker.config import BrokerConfig, TopicConfig
from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.settings import InvalidValueError, Value
from kohort.broker.config.topic import TOPIC_SETTINGS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "-1", -1),
        ("retention.ms", "+7", 7),
        ("retention.ms", "9223372036854775807", 2**63 - 1),
        ("preallocate", "TRUE", True),
        ("preallocate", "false", False),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("cleanup.policy", " compact , delete,compact", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "0:1,1:1", ("0:1", "1:1")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: Value) -> None:
    parsed = TOPIC_SETTINGS[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


# The texts are those of a running Kafka 4.4.0.
@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "9" * 5000, "Not a number of type LONG"),
        ("retention.ms", "-5", "Value must be at least -1"),
        ("max.message.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "10", "Value must be at least 1048576"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "NaN", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "0_0.5", "Not a number of type DOUBLE"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("cleanup.policy", "zap", "String must be one of: compact, delete"),
        ("cleanup.policy", ",compact", "Values must not be empty"),
        ("cleanup.policy", "compact,", "Values must not be empty"),
        (
            "compression.type",
            "brotli",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        (
            "leader.replication.throttled.replicas",
            "zz",
            (
                "must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
    ],
)
def test_text_that_is_no_value_is_refused_in_kafkas_words(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        TOPIC_SETTINGS[name].parse(text)
    assert str(refused.value).startswith("Invalid value ")
    assert str(refused.value).endswith(f" for configuration {name}: {reason}")


def test_a_text_that_not_every_answer_could_repeat_is_refused() -> None:
    replicas = TOPIC_SETTINGS["leader.replication.throttled.replicas"]
    assert replicas.parse(",".join(f"{index}:1" for index in range(1000)))
    with pytest.raises(InvalidValueError, match="at most 8000 characters") as refused:
        replicas.parse(",".join(f"{index}:1" for index in range(5000)))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("setting", [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()])
def test_the_text_of_a_default_parses_to_the_default(setting: object) -> None:
    assert isinstance(setting, type(TOPIC_SETTINGS["retention.ms"]))
    text = setting.format(setting.default)
    if text is None:
        assert setting.optional
    else:
        assert setting.parse(text) == setting.default


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (1.0, "1.0"), (1.7976931348623157e308, "1.7976931348623157E308")],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert TOPIC_SETTINGS["min.cleanable.dirty.ratio"].format(value) == text


def test_what_is_allowed_is_said_in_words() -> None:
    assert TOPIC_SETTINGS["retention.ms"].allowed() == "a whole number of at least -1"
    assert BROKER_SETTINGS["kohort.metrics.port"].allowed() == (
        "a whole number of at least -1 and at most 65535"
    )
    assert TOPIC_SETTINGS["compression.gzip.level"].allowed() == (
        "a whole number of at least 1 and at most 9, or -1"
    )
    assert TOPIC_SETTINGS["cleanup.policy"].allowed() == (
        "a comma-separated list of compact, delete"
    )
    assert TOPIC_SETTINGS["preallocate"].allowed() == "true or false"


def test_a_config_cannot_be_changed() -> None:
    config = TopicConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.retention_ms = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del config.retention_ms


def test_a_config_refuses_what_is_not_declared() -> None:
    with pytest.raises(TypeError, match="retention_hours"):
        TopicConfig(retention_hours=1)  # type: ignore[call-arg]


def test_configs_are_equal_when_their_values_are() -> None:
    assert TopicConfig(retention_ms=5) == TopicConfig(retention_ms=5)
    assert hash(TopicConfig(retention_ms=5)) == hash(TopicConfig(retention_ms=5))
    assert TopicConfig(retention_ms=5) != TopicConfig()
    assert TopicConfig() != BrokerConfig()
    assert dataclasses.replace(TopicConfig(flush_ms=1), retention_ms=5) == TopicConfig(
        flush_ms=1, retention_ms=5
    )


def test_a_config_shows_what_is_not_default() -> None:
    assert repr(BrokerConfig(num_partitions=4)) == "BrokerConfig(num_partitions=4)"
