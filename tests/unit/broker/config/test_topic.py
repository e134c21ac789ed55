"""A topic's configs are what is set on it, over what the broker says."""

import pytest

from kohort.broker.config import BrokerConfig, TopicConfig
from kohort.broker.config.settings import InvalidValueError
from kohort.broker.config.topic import InvalidConfigError, effective


def test_a_topic_without_overrides_has_the_defaults_of_kafka() -> None:
    assert effective(BrokerConfig(), {}) == TopicConfig()


def test_the_broker_gives_what_the_topic_does_not_set() -> None:
    broker = BrokerConfig(log_retention_hours=2, message_max_bytes=5000, log_roll_ms=7)
    config = effective(broker, {"segment.ms": "8"})
    assert (config.retention_ms, config.max_message_bytes) == (7_200_000, 5000)
    assert config.segment_ms == 8


def test_cleanup_policy_says_what_becomes_of_old_records() -> None:
    config = effective(BrokerConfig(), {"cleanup.policy": "compact,delete"})
    assert (config.is_compacted, config.deletes_old_segments) == (True, True)
    config = effective(BrokerConfig(), {"cleanup.policy": ""})
    assert (config.is_compacted, config.deletes_old_segments) == (False, False)


def test_a_small_segment_size_for_tests_replaces_the_real_one() -> None:
    config = effective(BrokerConfig(), {"internal.segment.bytes": "1000"})
    assert config.segment_bytes == 1000


def test_what_kafka_refuses_is_refused_in_its_words() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"^Unknown topic config name: log\.retention\.ms$"
    ):
        effective(BrokerConfig(), {"log.retention.ms": "5"})
    with pytest.raises(InvalidValueError, match="Not a number of type LONG"):
        effective(BrokerConfig(), {"retention.ms": "five"})
    with pytest.raises(
        InvalidConfigError,
        match=r"^conflict topic config setting min.compaction.lag.ms \(100\) > max\.compaction",
    ):
        effective(BrokerConfig(), {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"})
    with pytest.raises(InvalidConfigError, match="Tiered Storage functionality is disabled"):
        effective(BrokerConfig(), {"remote.storage.enable": "true"})
