"""DescribeConfigs explains where a value comes from as Kafka does; run-time changes count."""

import pytest

from kohort.broker.config import load
from kohort.broker.config.current import ConfigEntry, ConfigSource, CurrentConfig, Synonym
from kohort.broker.config.settings import ConfigType


def current(*overrides: str, **at_run_time: dict[str, str]) -> CurrentConfig:
    return CurrentConfig(load(overrides=overrides), **at_run_time)  # type: ignore[arg-type]


def topic_entry(config: CurrentConfig, name: str, **configs: str) -> ConfigEntry:
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    return next(entry for entry in config.describe_topic(overrides) if entry.name == name)


def broker_entry(config: CurrentConfig, name: str) -> ConfigEntry:
    return next(entry for entry in config.describe_broker() if entry.name == name)


# What a running Kafka 4.4.0 answers, for each.
def test_a_topic_config_that_is_set_comes_before_the_brokers() -> None:
    entry = topic_entry(current(), "cleanup.policy", cleanup_policy="compact,delete")
    assert entry.value == "compact,delete"
    assert entry.source is ConfigSource.TOPIC
    assert entry.synonyms == (
        Synonym("cleanup.policy", "compact,delete", ConfigSource.TOPIC),
        Synonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    )
    assert (entry.type, entry.read_only) == (ConfigType.LIST, False)


def test_retention_in_hours_is_no_synonym_of_retention_ms() -> None:
    entry = topic_entry(current(), "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("604800000", ConfigSource.DEFAULT, ())
    entry = topic_entry(current("log.retention.ms=5"), "retention.ms")
    assert (entry.value, entry.source) == ("5", ConfigSource.STATIC_BROKER)
    assert entry.synonyms == (
        Synonym("log.retention.ms", "5", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_all_topic_configs_are_described_but_the_internal_one_only_when_set() -> None:
    names = [entry.name for entry in current().describe_topic({})]
    assert len(names) == 37
    entry = topic_entry(current(), "internal.segment.bytes", internal_segment_bytes="4000")
    assert entry.value == "4000"


def test_a_config_without_effect_says_so() -> None:
    assert topic_entry(current(), "preallocate").documentation.startswith(
        "Accepted and stored, without effect here."
    )
    assert "without effect" not in topic_entry(current(), "retention.ms").documentation


def test_a_setting_of_a_listener_comes_before_that_of_all_listeners() -> None:
    name, bare = "listener.name.plaintext.ssl.client.auth", "ssl.client.auth"
    config = current("ssl.client.auth=requested", f"{name}=none")
    config.replace("1", {name: "required"})
    entry = broker_entry(config, name)
    assert (entry.value, entry.source) == ("required", ConfigSource.DYNAMIC_BROKER)
    assert entry.synonyms == (
        Synonym(name, "required", ConfigSource.DYNAMIC_BROKER),
        Synonym(name, "none", ConfigSource.STATIC_BROKER),
        Synonym(bare, "requested", ConfigSource.STATIC_BROKER),
        Synonym(bare, "none", ConfigSource.DEFAULT),
    )


def test_what_is_set_for_this_broker_comes_before_what_is_set_for_all() -> None:
    config = current(
        "log.segment.bytes=2000000",
        for_this_broker={"log.segment.bytes": "4000000"},
        for_all_brokers={"log.segment.bytes": "3000000"},
    )
    assert config.config.log_segment_bytes == 4_000_000
    sources = [
        (synonym.value, synonym.source)
        for synonym in broker_entry(config, "log.segment.bytes").synonyms
    ]
    assert sources == [
        ("4000000", ConfigSource.DYNAMIC_BROKER),
        ("3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("2000000", ConfigSource.STATIC_BROKER),
        ("1073741824", ConfigSource.DEFAULT),
    ]
    assert topic_entry(config, "segment.bytes").source is ConfigSource.DYNAMIC_BROKER


def test_a_change_at_run_time_counts_at_once_and_can_be_taken_back() -> None:
    config = current()
    config.replace("", {"log.retention.ms": "5"})
    assert config.config.log_retention_ms == 5
    assert [entry.name for entry in config.describe_all_brokers()] == [
        "min.insync.replicas",
        "log.retention.ms",
    ]
    config.replace("1", {"log.retention.ms": "6"})
    assert config.config.log_retention_ms == 6
    config.replace("1", {})
    config.replace("", {})
    assert config.config.log_retention_ms is None


def test_values_that_cannot_be_are_refused_before_they_are_stored() -> None:
    config = current("log.cleaner.max.compaction.lag.ms=1000")
    with pytest.raises(ValueError, match="Not a number"):
        config.check("1", {"log.retention.ms": "x"})
    with pytest.raises(ValueError, match="must not exceed"):
        config.check("", {"log.cleaner.min.compaction.lag.ms": "2000"})
    config.check("1", {"log.retention.ms": "5"})
    assert config.config.log_retention_ms is None


def test_a_stored_value_that_is_no_longer_understood_does_not_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = current(for_all_brokers={"log.segment.bytes": "huge", "gone": "1", "log.roll.ms": "5"})
    assert config.config.log_roll_ms == 5
    assert "log.segment.bytes" in caplog.text
    assert "gone" in caplog.text


def test_internal_settings_of_the_broker_are_not_described() -> None:
    names = {entry.name for entry in current().describe_broker()}
    assert "producer.id.expiration.ms" in names
    assert "producer.id.expiration.check.interval.ms" not in names


def test_users_stay_disabled_where_other_settings_do_not_go_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = {"kohort.users.disabled": "mallory", "log.cleaner.max.compaction.lag.ms": "1"}
    stored["log.cleaner.min.compaction.lag.ms"] = "2"
    config = current(for_this_broker=stored).config
    assert "Ignoring contradictory" in caplog.text
    assert config.kohort_users_disabled == ("mallory",)
    assert config.log_cleaner_min_compaction_lag_ms == 0


def test_a_stored_secret_that_is_not_used_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    stored = {"sasl.jaas.config": "horse" * 20_000}
    CurrentConfig(load(), for_this_broker=stored)
    assert "Ignoring invalid dynamic config sasl.jaas.config=[hidden]" in caplog.text
    assert "horse" not in caplog.text
