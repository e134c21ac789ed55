"""What may be changed while the broker runs is what may be changed in Kafka 4.4."""

import pytest

from kohort.broker.config import load
from kohort.broker.config.current import ConfigSource, CurrentConfig
from kohort.broker.config.ignored import ignored_settings
from kohort.broker.config.run_time import check_change
from kohort.protocol.errors import ErrorCode, KafkaError

THIS, ALL = "1", ""


def current(*overrides: str) -> CurrentConfig:
    return CurrentConfig(load(overrides=overrides))


def refusal(config: CurrentConfig, broker: str, **changes: str) -> KafkaError | None:
    """What is answered who adds these, with underscores for dots, to what is set."""
    named = {name.replace("_", "."): text for name, text in changes.items()}
    try:
        check_change(config, broker, config.set_at_run_time(broker) | named)
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("broker", [THIS, ALL])
@pytest.mark.parametrize(
    "change",
    [
        {"log_cleaner_backoff_ms": "1"},
        {"log_cleaner_dedupe_buffer_size": "9000000"},
        {"max_connections": "1"},
        {"max_connections_per_ip": "1"},
        {"max_connections_per_ip": "0", "max_connections_per_ip_overrides": "127.0.0.1:5"},
        {"producer_id_expiration_ms": "1000"},
        {"num_io_threads": "16"},
        {"background_threads": "5"},
        {"log_cleaner_threads": "2"},
        {"config_providers": "x"},
        {"follower_replication_throttled_rate": "100"},
        {"group_streams_assignment_interval_ms": "500"},
        {"log_local_retention_ms": "1000"},
    ],
)
def test_what_kafka_changes_at_run_time_is_changed(broker: str, change: dict[str, str]) -> None:
    assert refusal(current(), broker, **change) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"node_id": "2"}, "Cannot update these configs dynamically: \\[node.id\\]"),
        ({"log_retention_hours": "2"}, "dynamically: \\[log.retention.hours\\]"),
        ({"process_roles": "broker"}, "dynamically: \\[process.roles\\]"),
        ({"zookeeper_connect": "x"}, "dynamically: \\[zookeeper.connect\\]"),
        ({"no_such": "x"}, "dynamically: \\[no.such\\]"),
        ({"listeners": "PLAINTEXT://localhost:1"}, "opened when the broker starts"),
        ({"listener_security_protocol_map": "A:PLAINTEXT"}, "opened when the broker starts"),
        ({"cordoned_log_dirs": "*"}, "one data directory"),
        ({"ssl_keystore_location": "/x"}, "only per-listener"),
        ({"listener_name_plaintext_ssl_client_auth": "none"}, "read only when the broker starts"),
        (
            {"listener_name_plaintext_connections_max_reauth_ms": "5"},
            "read only when the broker starts",
        ),
        (
            {"listener_name_plaintext_ssl_keystore": "x"},
            "Unknown listener settings: \\[listener.name.pla",
        ),
        ({"listener_name_plaintext_max_connections": "x"}, "Not a number of type INT"),
        ({"listener_name_nosuch_max_connections": "1"}, "listeners has no listener NOSUCH"),
        ({"listener_name_PLAINTEXT_max_connections": "1"}, "in lower case"),
        ({"listener_name_plaintext_max_connections": "0"}, "Invalid listener.name.plaintext.max"),
        ({"log_cleaner_backoff_ms": "-1"}, "Value must be at least 0"),
        ({"log_cleaner_backoff_ms": "x"}, "Not a number of type LONG"),
        ({"max_connections": "0"}, "Invalid max.connections 0"),
        ({"max_connections_per_ip": "0"}, "max.connections.per.ip.overrides"),
        ({"max_connection_creation_rate": "0"}, "Invalid max.connection.creation.rate 0"),
        ({"num_io_threads": "0"}, "Value must be at least 1"),
        ({"num_io_threads": "3"}, "at least half the current value 8"),
        ({"num_io_threads": "17"}, "not be greater than double the current value 8"),
        ({"log_cleaner_threads": "0"}, "at least half"),
        ({"group_streams_assignment_interval_ms": "5000000"}, "less than or equal to"),
        ({"group_coordinator_cached_buffer_max_bytes": "5"}, "at least 524288"),
        ({"transaction_partition_verification_enable": "x"}, "true or false"),
        ({"log_local_retention_ms": "99999999999"}, "not be more than log.retention.ms"),
        ({"log_local_retention_ms": "-1"}, "not be more than log.retention.ms"),
        ({"log_retention_ms": "9", "log_local_retention_ms": "10"}, "log.retention.ms"),
    ],
)
def test_other_changes_are_refused_with_the_reason(change: dict[str, str], told: str) -> None:
    error = refusal(current(), THIS, **change)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError, match=told):
        raise error


def test_a_setting_of_security_is_set_for_one_broker_and_not_for_all() -> None:
    assert refusal(current(), THIS, sasl_kerberos_min_time_before_relogin="58000") is None
    error = refusal(current(), ALL, sasl_kerberos_min_time_before_relogin="58000")
    assert error is not None
    assert "broker id must be specified" in str(error)


def test_threads_are_compared_with_what_counts_now() -> None:
    config = current("num.io.threads=100")
    assert refusal(config, THIS, num_io_threads="200") is None
    config.replace(ALL, config.set_at_run_time(ALL) | {"num.io.threads": "4"})
    assert refusal(config, THIS, num_io_threads="9") is not None


def test_min_insync_replicas_is_set_for_all_brokers_and_never_for_one() -> None:
    config = current()
    assert refusal(config, ALL, min_insync_replicas="2") is None
    error = refusal(config, THIS, min_insync_replicas="1")
    assert error is not None
    assert error.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError, match="not removed") as removed:
        check_change(config, ALL, {})
    assert removed.value.code is ErrorCode.INVALID_CONFIG


def test_min_insync_replicas_that_an_earlier_release_stored_for_one_broker_can_be_removed() -> None:
    stored = {"min.insync.replicas": "2"}
    config = CurrentConfig(load(), for_this_broker=stored)
    assert refusal(config, THIS, log_retention_ms="5") is None
    check_change(config, THIS, {})


def test_topics_have_min_insync_replicas_from_what_is_set_for_all() -> None:
    config = current("min.insync.replicas=2")

    def source() -> tuple[ConfigSource, str | None]:
        entries = config.describe_topic({})
        return next((one.source, one.value) for one in entries if one.name == "min.insync.replicas")

    assert source() == (ConfigSource.DYNAMIC_DEFAULT_BROKER, "2")
    config.replace(ALL, {"min.insync.replicas": "3"})
    assert source() == (ConfigSource.DYNAMIC_DEFAULT_BROKER, "3")


def test_a_setting_without_effect_is_described_with_what_was_given_and_set() -> None:
    config = current("num.io.threads=9", "sasl.jaas.config=PlainLoginModule required user_a=b;")

    def entry(name: str) -> tuple[str | None, ConfigSource, bool, bool]:
        found = next(one for one in config.describe_broker() if one.name == name)
        return found.value, found.source, found.read_only, found.is_sensitive

    assert entry("num.io.threads") == ("9", ConfigSource.STATIC_BROKER, False, False)
    assert entry("background.threads") == ("10", ConfigSource.DEFAULT, False, False)
    assert entry("process.roles") == (None, ConfigSource.DEFAULT, True, False)
    assert entry("sasl.jaas.config")[3]
    config.replace(THIS, {"num.io.threads": "10"})
    assert entry("num.io.threads") == ("10", ConfigSource.DYNAMIC_BROKER, False, False)
    config.replace(THIS, {})
    assert entry("num.io.threads")[0] == "9"


def test_rates_of_replication_are_described_only_where_they_are_set() -> None:
    rate = "leader.replication.throttled.rate"
    config = current()
    assert rate not in {one.name for one in config.describe_broker()}
    config.replace(THIS, {rate: "5"})
    assert rate in {one.name for one in config.describe_broker()}


def test_a_stored_value_that_is_no_longer_understood_is_still_described() -> None:
    config = CurrentConfig(load(), for_all_brokers={"log.segment.bytes": "huge"})
    shown = {one.name: one.value for one in config.describe_all_brokers()}
    assert shown["log.segment.bytes"] == "huge"


def test_every_line_of_the_table_is_understood() -> None:
    for name, setting in ignored_settings().items():
        assert setting.name == name
        assert setting.optional is (setting.default is None)
