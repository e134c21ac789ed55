"""The broker that tests get as a fixture: its topics and records, its ends and its settings."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from kohort.broker.app import StartError
from kohort.broker.config import ConfigError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing import Kafka, kafka_settings
from kohort.testing.kit.machine import UnsupportedError


def test_what_is_produced_is_read_as_it_was_written(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=6)
    produced = kafka.produce(
        "orders", "a value", key="a key", headers={"from": b"here", "to": None}, timestamp_ms=5
    )

    (record,) = kafka.records("orders")
    assert (record.topic, record.partition, record.offset) == produced
    assert (record.key, record.value, record.timestamp) == (b"a key", b"a value", 5)
    assert record.headers == (("from", b"here"), ("to", None))
    assert kafka.records("orders", partition=produced.partition) == [record]


def test_a_value_that_is_not_serialized_is_refused(kafka: Kafka) -> None:
    amount: Any = {"amount": 1}
    with pytest.raises(TypeError, match="bytes, text or None, not dict"):
        kafka.produce("orders", amount)


def test_a_tombstone_and_a_chosen_partition(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3)
    assert kafka.produce("orders", None, key=b"k", partition=2) == ("orders", 2, 0)
    assert kafka.records("orders")[0].value is None


def test_records_without_a_key_go_round(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3)
    assert sorted(kafka.produce("orders", b"x").partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_a_topic_is_made_by_its_first_record(kafka: Kafka) -> None:
    kafka.produce("orders", b"x")
    assert len(kafka.records("orders")) == 1


def test_a_topic_that_is_not_there_cannot_be_read(kafka: Kafka) -> None:
    with pytest.raises(KafkaError) as caught:
        kafka.records("orders")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_record_too_large_is_refused(kafka: Kafka) -> None:
    kafka.create_topic("small", configs={"max.message.bytes": 100})
    with pytest.raises(KafkaError) as caught:
        kafka.produce("small", bytes(200))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_waiting_for_more_records_than_come_says_how_many_there_are(kafka: Kafka) -> None:
    kafka.produce("orders", b"x")
    with pytest.raises(TimeoutError, match="1 of 2 records in orders"):
        kafka.records("orders", count=2, timeout=0.01)


async def test_a_client_on_the_tests_loop_writes_and_reads(kafka: Kafka) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    async with producer:
        await producer.send_and_wait("orders", b"from a client")
    (record,) = await kafka.records_async("orders", count=1)
    assert record.value == b"from a client"


async def test_waiting_where_clients_run_is_refused_with_what_to_do_instead(kafka: Kafka) -> None:
    with pytest.raises(RuntimeError, match="records_async"):
        kafka.records("orders", count=1)
    with pytest.raises(RuntimeError, match="wait_async"):
        kafka.group("billing").wait(members=1)


async def test_what_a_transaction_gave_up_is_no_committed_record(kafka: Kafka) -> None:
    kafka.produce("orders", b"plain")
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t")
    async with producer:
        for value, commits in ((b"aborted", False), (b"committed", True)):
            await producer.begin_transaction()
            await producer.send_and_wait("orders", value)
            await (producer.commit_transaction() if commits else producer.abort_transaction())

    committed = [one.value for one in kafka.records("orders", committed=True)]
    assert committed == [b"plain", b"committed"]
    everything = [one.value for one in kafka.records("orders")]
    assert everything == [b"plain", b"aborted", b"committed"]


@pytest.fixture(params=["memory", "disk"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Kafka:
    return Kafka(directory=tmp_path if request.param == "disk" else None)


def test_a_restart_keeps_records_groups_and_the_address(either: Kafka) -> None:
    with either as kafka:
        kafka.produce("orders", b"x")
        where = kafka.bootstrap_servers
        kafka.restart()
        assert kafka.bootstrap_servers == where
        kafka.produce("orders", b"y")
        assert [one.value for one in kafka.records("orders")] == [b"x", b"y"]


def test_a_crash_keeps_what_was_written(either: Kafka) -> None:
    with either as kafka:
        kafka.produce("orders", b"x")
        kafka.crash()
        kafka.produce("orders", b"y")
        kafka.crash()
        assert [one.value for one in kafka.records("orders")] == [b"x", b"y"]


def test_a_power_loss_takes_what_was_not_forced_to_disk() -> None:
    left = set()
    for seed in range(20):
        with Kafka(seed=seed) as kafka:
            kafka.create_topic("orders")
            kafka.produce("orders", b"x")
            kafka.crash(lose_unsynced=True)
            left.add(len(kafka.records("orders")))
    assert left == {0, 1}


def test_a_power_loss_takes_nothing_that_was_forced() -> None:
    for seed in range(5):
        with Kafka({"log.flush.interval.messages": 1}, seed=seed) as kafka:
            kafka.produce("orders", b"x")
            kafka.crash(lose_unsynced=True)
            assert len(kafka.records("orders")) == 1


def test_a_full_disk_refuses_records_until_there_is_room(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", b"x")
    kafka.fill_disk()
    with pytest.raises(KafkaError) as caught:
        kafka.produce("orders", bytes(100))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    kafka.free_disk()
    kafka.restart()
    kafka.produce("orders", b"y")
    assert [one.value for one in kafka.records("orders")] == [b"x", b"y"]


def test_what_a_disk_of_the_machine_cannot_do_is_said(tmp_path: Path) -> None:
    with Kafka(directory=tmp_path) as kafka:
        with pytest.raises(UnsupportedError, match="in-memory"):
            kafka.crash(lose_unsynced=True)
        with pytest.raises(UnsupportedError, match="in-memory"):
            kafka.fill_disk()


def test_a_stopped_broker_is_asked_in_vain_and_comes_back(kafka: Kafka) -> None:
    kafka.produce("orders", b"x")
    kafka.stop()
    with pytest.raises(RuntimeError, match="broker is stopped"):
        kafka.create_topic("others")
    with pytest.raises(RuntimeError, match="broker is stopped"):
        kafka.create_topic("others", partitions=2)
    with pytest.raises(RuntimeError, match="broker is stopped"):
        kafka.records("orders")
    assert kafka.why() == {}
    kafka.start()
    assert len(kafka.records("orders")) == 1


@kafka_settings({"num.partitions": 3})
def test_settings_come_from_the_marker(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    assert {kafka.produce("orders", b"x").partition for _ in range(3)} == {0, 1, 2}


@kafka_settings({}, on_disk=True)
def test_the_marker_puts_the_data_on_disk(kafka: Kafka, tmp_path_factory: object) -> None:
    kafka.produce("orders", b"x")
    with pytest.raises(UnsupportedError):
        kafka.fill_disk()


def test_an_unknown_setting_is_told() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition"):
        Kafka({"num.partition": 3}).open()


def test_an_address_that_is_taken_is_told(kafka: Kafka) -> None:
    with pytest.raises((StartError, OSError)):
        Kafka(port=kafka.port).open()


def test_brokers_of_one_process_are_strangers(kafka: Kafka, kafka_module: Kafka) -> None:
    kafka.produce("orders", b"x")
    with pytest.raises(KafkaError):
        kafka_module.records("orders")


def test_the_brokers_of_wider_scope_live_on_a(kafka_module: Kafka, kafka_session: Kafka) -> None:
    kafka_module.produce("module", b"x")
    kafka_session.produce("session", b"x")
    assert kafka_module.port != kafka_session.port


def test_the_brokers_of_wider_scope_live_on_b(kafka_module: Kafka, kafka_session: Kafka) -> None:
    # In either order, or alone: each makes sure that there is something.
    kafka_module.produce("module", b"x")
    kafka_session.produce("session", b"x")
    assert kafka_module.port != kafka_session.port
