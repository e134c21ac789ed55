"""A consumer whose certificates are renewed while it runs, with a real Kafka and with Kohort."""

import asyncio
import logging
import uuid
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer
from kohort.client.core.errors import CertificateError
from kohort.client.processing.dead_letters import DeadLetter, TopicSink
from tests.support.brokers.certificates import Authority
from tests.support.brokers.on_both import on_both
from tests.support.brokers.secure_kafka import SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record

LIMIT_S: Final = 180

Broker = SecureKafka | SecureKohort
broker = on_both(SecureKafka, SecureKohort, long=SecureKafka)


class Files:
    """The client's files, which are replaced."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self.ca, self.cert = directory / "ca.pem", directory / "client.pem"
        self.take(authority)

    def take(self, authority: Authority) -> None:
        """Have both from this authority."""
        new = self.cert.with_suffix(".new")
        for path, source in (
            (self.cert, authority.issue("client", "DNS:client")),
            (self.ca, authority.certificate),
        ):
            new.write_bytes(source.read_bytes())
            new.replace(path)


def consumer(broker: Broker, files: Files, topic: str) -> Consumer[Any, Any]:
    return Consumer(
        topic,
        bootstrap_servers=f"127.0.0.1:{broker.ports['MUTUAL']}",
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        security_protocol="SSL",
        ssl_cafile=str(files.ca),
        ssl_certfile=str(files.cert),
        connections_max_idle_ms=500,
    )


def fill(broker: Broker, topic: str, value: bytes) -> None:
    ConfluentClient(broker.bootstrap).produce(topic, [Record(value)])


def make(broker: Broker) -> str:
    topic = f"renewed-{uuid.uuid4().hex[:12]}"
    create_topics(admin_client(broker.bootstrap), NewTopic(topic, 1, 1))
    return topic


async def test_new_certificates_on_both_sides_need_no_restart_of_the_consumer(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker is restarted, so that all connections are new, with an authority of which the
    consumer has not known when it started; and trusts no other.
    """
    caplog.set_level(logging.INFO, "kohort.client.net")
    files = Files(tmp_path, broker.authority)
    topic = await asyncio.to_thread(make, broker)
    await asyncio.to_thread(fill, broker, topic, b"first")
    async with asyncio.timeout(LIMIT_S), consumer(broker, files, topic) as one:
        assert (await one.getone()).value == b"first"
        assert "certificates have changed" not in caplog.text
        renewed = Authority(tmp_path / "renewed")
        whole = files.ca.read_bytes()
        files.ca.write_bytes(whole[: len(whole) // 2])
        await asyncio.to_thread(restart, broker, renewed)
        # The old ones, which do not fit any more.
        with pytest.raises(CertificateError, match="ssl_cafile"):
            await one.getone()
        assert "still using the previous certificates" in caplog.text
        files.take(renewed)
        await asyncio.to_thread(fill, broker, topic, b"second")
        while True:
            try:
                record = await one.getone()
            except CertificateError:
                continue
            assert record.value == b"second"
            break
        assert "certificates have changed; new connections use them" in caplog.text
    await asyncio.to_thread(restart, broker, broker.authority)


def restart(broker: Broker, authority: Authority) -> None:
    settings = {
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.truststore.location": str(authority.certificate),
    }
    broker.stop()
    if isinstance(broker, SecureKafka):
        broker.properties |= settings
    else:
        broker.overrides |= settings
    broker.start()


async def test_a_connection_that_is_made_later_shows_the_certificate_of_then(
    broker: Broker, tmp_path: Path
) -> None:
    """An authority that the broker does not know tells which certificate it was."""
    files = Files(tmp_path, broker.authority)
    topic = await asyncio.to_thread(make, broker)
    async with asyncio.timeout(LIMIT_S), consumer(broker, files, topic) as one:
        stranger = Authority(tmp_path / "stranger")
        files.take(stranger)
        files.ca.write_bytes(broker.authority.certificate.read_bytes())
        # The first connection has been idle for too long; the next one is made for this question.
        await asyncio.sleep(1)
        with pytest.raises(CertificateError, match="does not accept this client's certificate"):
            await one.partitions_for(topic)
        files.take(broker.authority)
        assert await one.partitions_for(topic)


@pytest.mark.long
async def test_a_producer_of_dead_letters_goes_on_with_new_certificates(
    broker: Broker, tmp_path: Path
) -> None:
    """The broker is restarted and trusts none but a new authority, as above."""
    files = Files(tmp_path, broker.authority)
    topic, dead = await asyncio.to_thread(make, broker), await asyncio.to_thread(make, broker)
    await asyncio.to_thread(fill, broker, topic, b"poison")
    async with asyncio.timeout(LIMIT_S), consumer(broker, files, topic) as one:
        record = await one.getone()
        letter = DeadLetter(record, ValueError("no"), attempts=1, group_id=topic, failed_at_ms=0)
        sink = TopicSink(dead, one.config)
        await sink.write(letter)
        producer = sink._producer
        renewed = Authority(tmp_path / "renewed")
        files.take(renewed)
        await asyncio.to_thread(restart, broker, renewed)
        await sink.write(letter)
        assert sink._producer is producer
        await sink.stop()
    await asyncio.to_thread(restart, broker, broker.authority)
    found = await asyncio.to_thread(ConfluentClient(broker.bootstrap).consume, dead, 2)
    assert [each.value for each in found] == [b"poison", b"poison"]
