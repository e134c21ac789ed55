"""Producers and consumers in Python through TLS and SCRAM, with the least rules that they need."""

import asyncio
import io
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer
from kafka import KafkaConsumer, KafkaProducer

import kohort
from tests.interop.least_rights.checks import (
    check_needed,
    check_suffice,
    each_mechanism,
    each_need,
    rows_of,
)
from tests.interop.least_rights.needs import is_denied
from tests.interop.least_rights.visitors import VALUES, Client, Guarded, Names, ProgramResult
from tests.support.clients.confluent_client import QUIET
from tests.support.clients.login import Login

TIMEOUT_S: Final = 30
PRODUCER: Final = "producer, idempotent or not"
CREATING: Final = "producer that creates its topic by use"
MEMBER: Final = "consumer in a group"
READER: Final = "consumer without a group"

Work = Callable[[Login, Names, Path], ProgramResult]


def librdkafka_produces(login: Login, names: Names, *, idempotent: bool) -> ProgramResult:
    settings = {**QUIET, "bootstrap.servers": login.bootstrap, **login.librdkafka()}
    producer = Producer({**settings, "enable.idempotence": idempotent, "linger.ms": 0})
    said: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        said.append(str(error or "written"))

    producer.produce(names["TOPIC"], b"value", on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    return ProgramResult(said == ["written"], f"{said}")


def librdkafka_reads(login: Login, names: Names) -> ProgramResult:
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": login.bootstrap,
            **login.librdkafka(),
            "group.id": names["GROUP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([names["TOPIC"]])
    try:
        return _poll(consumer)
    finally:
        consumer.close()


def _poll(consumer: Consumer) -> ProgramResult:
    said, read = "", 0
    end_s = time.monotonic() + TIMEOUT_S
    while read < len(VALUES) and not is_denied(said) and time.monotonic() < end_s:
        for found in consumer.consume(len(VALUES), 0.1):
            if found.error() is None:
                read += 1
            else:
                said += f"{found.error()}\n"
    if not said:
        consumer.commit(asynchronous=False)
    return ProgramResult(read == len(VALUES), said)


@contextmanager
def errors_told(said: list[str]) -> Iterator[None]:
    """What the library raises is what it says."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the libraries' own, of many classes.
        said.append(f"{error!r} {getattr(error, 'code', '')!r}")


@contextmanager
def log_told(name: str, said: list[str]) -> Iterator[None]:
    """So are the errors in its log."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.ERROR)
    logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(name).removeHandler(handler)
        said.append(text.getvalue())


def kafka_python_produces(login: Login, names: Names, directory: Path) -> ProgramResult:
    del directory
    said: list[str] = []
    with errors_told(said):
        producer = KafkaProducer(bootstrap_servers=login.bootstrap, **login.python())
        try:
            producer.send(names["TOPIC"], b"value").get(TIMEOUT_S)
        finally:
            producer.close(timeout=1)
    return ProgramResult(not said, f"{said}")


def kafka_python_reads(login: Login, names: Names, directory: Path) -> ProgramResult:
    del directory
    said: list[str] = []
    read: list[Any] = []
    with errors_told(said), log_told("kafka", said):
        consumer = KafkaConsumer(
            names["TOPIC"],
            bootstrap_servers=login.bootstrap,
            group_id=names["GROUP"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=5_000,
            **login.python(),
        )
        try:
            read += (record for record, _ in zip(consumer, VALUES, strict=False))
            consumer.commit()
        finally:
            consumer.close(autocommit=False)
    return ProgramResult(len(read) == len(VALUES), f"{said}")


def asynchronous(work: Callable[[Login, Names], Any]) -> Work:
    """One that raises what went wrong."""

    def run(login: Login, names: Names, directory: Path) -> ProgramResult:
        del directory
        said: list[str] = []

        async def limited() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                await work(login, names)

        with errors_told(said):
            asyncio.run(limited())
        return ProgramResult(not said, f"{said}")

    return run


async def aiokafka_produces(login: Login, names: Names) -> None:
    async with AIOKafkaProducer(bootstrap_servers=login.bootstrap, **login.python()) as producer:
        await producer.send_and_wait(names["TOPIC"], b"value")


async def reads(kind: Any, login: Login, names: Names, **more: object) -> None:  # noqa: ANN401
    """aiokafka's consumer, or ours."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **more}
    where = {"bootstrap_servers": login.bootstrap, **login.python()}
    async with kind(names["TOPIC"], **where, **settings) as consumer:
        for _ in VALUES:
            await consumer.getone()
        if "group_id" in more:
            await consumer.commit()


QUICK: Final = {
    "librdkafka, produces": Client(
        PRODUCER, lambda *of: librdkafka_produces(*of[:2], idempotent=True), empty=["TOPIC"]
    ),
    "librdkafka, a member": Client(MEMBER, lambda *of: librdkafka_reads(*of[:2]), filled=["TOPIC"]),
}
CLIENTS: Final = {
    "librdkafka, produces unnumbered": Client(
        PRODUCER, lambda *of: librdkafka_produces(*of[:2], idempotent=False), empty=["TOPIC"]
    ),
    "librdkafka, creates": Client(
        CREATING, lambda *of: librdkafka_produces(*of[:2], idempotent=True)
    ),
    "kafka-python, produces": Client(PRODUCER, kafka_python_produces, empty=["TOPIC"]),
    "kafka-python, a member": Client(MEMBER, kafka_python_reads, filled=["TOPIC"]),
    "aiokafka, produces": Client(PRODUCER, asynchronous(aiokafka_produces), empty=["TOPIC"]),
    "aiokafka, a member": Client(
        MEMBER,
        asynchronous(lambda of, names: reads(AIOKafkaConsumer, of, names, group_id=names["GROUP"])),
        filled=["TOPIC"],
    ),
    "our own, a member": Client(
        MEMBER,
        asynchronous(lambda of, names: reads(kohort.Consumer, of, names, group_id=names["GROUP"])),
        filled=["TOPIC"],
    ),
    "our own, reads": Client(
        READER,
        asynchronous(lambda of, names: reads(kohort.Consumer, of, names)),
        filled=["TOPIC"],
    ),
}


@each_need(rows_of(QUICK))
def test_librdkafka_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, QUICK[name], number, tmp_path)


def test_librdkafka_needs_no_more_than_the_document_says(guarded: Guarded, tmp_path: Path) -> None:
    check_suffice(guarded, QUICK["librdkafka, a member"], "SCRAM-SHA-512", tmp_path)


@pytest.mark.long
@each_need(rows_of(CLIENTS))
def test_a_client_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, CLIENTS[name], number, tmp_path)


@pytest.mark.long
@each_mechanism({**QUICK, **CLIENTS})
def test_a_client_needs_no_more_than_the_document_says(
    guarded: Guarded, name: str, mechanism: str, tmp_path: Path
) -> None:
    check_suffice(guarded, {**QUICK, **CLIENTS}[name], mechanism, tmp_path)
