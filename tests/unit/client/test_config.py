"""Settings: what is refused, and that it is said which one and why."""

import importlib.metadata
import inspect
import re

import pytest
from aiokafka import AIOKafkaConsumer

from kohort import Assignor, Consumer, JoinReason, RebalanceListener, errors
from kohort.client.config import ConsumerConfig, ConsumerSettings, config_from
from kohort.client.core.group.assignors import RangeAssignor


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bootstrap_server": "x"}, "did you mean bootstrap_servers"),
        ({"nonsense_of_all_kinds": 1}, "unknown setting nonsense_of_all_kinds"),
        ({"bootstrap_servers": ["localhost:http"]}, "is not host:port"),
        ({"bootstrap_servers": 9092}, "bootstrap_servers must be host:port"),
        ({"bootstrap_servers": "a..b:9092"}, "is not host:port"),
        ({"bootstrap_servers": "http://a:9092"}, "is not host:port"),
        ({"group_id": " "}, "group_id is empty"),
        ({"group_id": 5}, "group_id must be a str"),
        ({"enable_auto_commit": "false"}, "enable_auto_commit must be True or False"),
        ({"value_deserializer": "json"}, "value_deserializer must be a function"),
        ({"group_instance_id": "one"}, "needs a group_id"),
        ({"group_id": "g", "group_instance_id": "a b"}, "letters, digits"),
        ({"group_id": "g", "group_instance_id": "x" * 250}, "1 to 249"),
        ({"group_id": "g", "group_instance_id": ".."}, "group_instance_id"),
        ({"session_timeout_ms": 0}, "session_timeout_ms must be a whole number of 1 or more"),
        ({"session_timeout_ms": 2_000}, "must be less than session_timeout_ms"),
        ({"max_poll_records": 2.5}, "max_poll_records"),
        ({"max_poll_records": True}, "max_poll_records"),
        ({"retry_backoff_ms": 2_000}, "retry_backoff_max_ms"),
        ({"reconnect_backoff_ms": 2_000}, "reconnect_backoff_max_ms"),
        ({"missing_topic_timeout_ms": -1}, "missing_topic_timeout_ms"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset must be"),
        ({"isolation_level": "serializable"}, "isolation_level must be"),
        ({"join_reason": "boredom"}, "join_reason must be restart or upgrade"),
        ({"join_reason": JoinReason.ENFORCED}, "join_reason must be restart or upgrade"),
        ({"partition_assignment_strategy": "fair"}, "range, roundrobin, sticky"),
        ({"partition_assignment_strategy": ["range", RangeAssignor]}, "twice"),
        ({"partition_assignment_strategy": []}, "partition_assignment_strategy is empty"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        Consumer(**settings)  # type: ignore[arg-type]


def test_assignors_are_taken_by_name_as_classes_and_made() -> None:
    class Mine(Assignor):
        name = "mine"

        def assign(self, partition_counts: object, members: object) -> dict[str, list[object]]:  # type: ignore[override]
            return {}

    mine = Mine()
    config = config_from({"partition_assignment_strategy": ["range", mine]})
    assert [type(one) for one in config.assignors()] == [RangeAssignor, Mine]
    assert config.assignors()[1] is mine
    for single in ("range", RangeAssignor, RangeAssignor()):
        names = [
            one.name for one in config_from({"partition_assignment_strategy": single}).assignors()
        ]
        assert names == ["range"]


def test_a_password_is_not_shown() -> None:
    settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }
    config = config_from(settings)
    assert "secret" not in repr(config)


def test_the_keyword_arguments_are_the_fields_of_the_configuration() -> None:
    fields = inspect.signature(ConsumerConfig).parameters
    types = {name: one.__forward_arg__ for name, one in ConsumerSettings.__annotations__.items()}
    assert types == {name: one.annotation for name, one in fields.items()}


def test_brokers_are_told_the_version_of_the_package() -> None:
    told = config_from({}).connection.software_version
    assert re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", told), "brokers refuse it"
    assert told == importlib.metadata.version("kohort")


def test_a_list_of_topics_in_place_of_topics_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"\['a', 'b'\] is not a topic name"):
        Consumer(["a", "b"], group_id="g")  # type: ignore[arg-type]


class Misnamed(RebalanceListener):
    def on_partitions_revoked(self, partitions: object) -> None: ...


class WellNamed(RebalanceListener):
    def on_revoked(self, partitions: object) -> None: ...

    def on_anything_else(self) -> None: ...


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (Misnamed(), "on_partitions_revoked is not called; .* on_revoked"),
        (WellNamed, "an object, not the class WellNamed"),
        (object(), "must derive from RebalanceListener"),
    ],
)
def test_a_listener_that_would_never_be_called_is_refused(
    listener: RebalanceListener, words: str
) -> None:
    consumer = Consumer(group_id="g")
    with pytest.raises(TypeError, match=words):
        consumer.subscribe(["t"], listener=listener)
    consumer.subscribe(["t"], listener=WellNamed())


def test_settings_that_only_aiokafka_has_are_explained() -> None:
    theirs = set(inspect.signature(AIOKafkaConsumer.__init__).parameters) - {"self", "topics"}
    wanted = {"rebalance_timeout_ms": "is max_poll_interval_ms", "api_version": "not needed"}
    for name in theirs - set(ConsumerSettings.__annotations__):
        with pytest.raises(errors.ConfigError, match=f"{name}; .*{wanted.get(name, 'not')}"):
            config_from({name: None})
