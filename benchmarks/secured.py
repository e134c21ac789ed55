"""Brokers with further listeners, and blocking clients of them."""

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.server_process import ServerProcess


def add_listeners(server: ServerProcess, ports: Mapping[str, int], key_store: Path) -> None:
    """Listeners besides the one that a broker has, by the names of their protocols."""
    listeners = [f"PLAINTEXT://127.0.0.1:{server.port}"]
    listeners += [f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()]
    given = {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    if isinstance(server, KafkaServer):
        controller = server.properties["controller.quorum.voters"].partition("@")[2]
        given["listeners"] += f",CONTROLLER://{controller}"
        protocols = ["PLAINTEXT", *ports]
        given["listener.security.protocol.map"] = ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{one}:{one}" for one in protocols)]
        )
        for protocol in ports:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            given[f"listener.name.{protocol.lower()}.scram-sha-256.sasl.jaas.config"] = module
        server.properties |= given
    else:
        server.overrides |= given  # type: ignore[attr-defined]  # The other kind there is.


def connect(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    """A blocking socket, with TLS if there is a context."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client if context is None else context.wrap_socket(client, server_hostname="127.0.0.1")


def ask(client: socket.socket, frame: bytes, place: memoryview) -> int:
    """Send a request, and read its answer over what is in `place`; how many bytes it has."""
    client.sendall(frame)
    return receive(client, place)


def receive(client: socket.socket, place: memoryview) -> int:
    """Bytes of an answer, which is read over the one before it; nothing else may be on its way."""
    filled = 0
    while filled < 4:
        filled += _some(client, place[filled:])
    size = 4 + int.from_bytes(place[:4], "big")
    while filled < size:
        filled += _some(client, place[filled:size])
    return size


def _some(client: socket.socket, place: memoryview) -> int:
    count = client.recv_into(place)
    if not count:
        raise ConnectionResetError("the broker has closed the connection")
    return count


def store_properties(data: Path, properties: Mapping[str, str | None]) -> None:
    """Put them where a broker finds them that is not started yet."""
    data.mkdir(parents=True, exist_ok=True)
    store = MetadataStore(data, new_cluster_id="benchmarks-of-security")
    store.set_properties(properties)
    store.close()


def produce_request(topic: str, batch: memoryview) -> ProduceRequest:
    """One batch for the only partition of a topic."""
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
