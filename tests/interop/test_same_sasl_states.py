"""Requests between the handshake of SASL and its end, on ours and on a secure Kafka: the same bytes
in the answer, or none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support import messages as m
from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.network.sasl import choose, say, scram_rules
from tests.support.network.wire import RawClient, framed, header, request_body

pytestmark = pytest.mark.long

VERSIONS = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
TOPICS = [m.MetadataRequestTopic(name="a"), m.MetadataRequestTopic(name="b")]
REQUESTS: Final = (
    *((VERSIONS, version) for version in range(5)),
    *((m.MetadataRequest(topics=TOPICS), version) for version in range(13)),
    *((m.MetadataRequest(topics=None), version) for version in (1, 4, 8, 9, 12)),
    *((m.MetadataRequest(topics=[]), version) for version in (0, 1, 10, 12)),
    (m.FindCoordinatorRequest(key="g"), 0),
    (m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    (m.ListGroupsRequest(), 4),
    (m.ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[]), 7),
    (m.ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[]), 7),
    (m.SaslHandshakeRequest(mechanism="PLAIN"), 0),
    (m.SaslHandshakeRequest(mechanism="NOPE"), 1),
)
FRAMES: Final = {
    **{
        f"{type(request).__name__} v{version} {number}": request_body(request, version)
        for number, (request, version) in enumerate(REQUESTS)
    },
    "another version": header(3, 99) + bytes(20),
    "versions of another version": header(18, 99),
    "another key": header(999, 0),
    "a body that cannot be": header(3, 1) + b"\x7f\xff\xff\xff",
    "more than a body": request_body(m.MetadataRequest(topics=[]), 1) + bytes(5),
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Mapping[str, int]]]:
    """The ports of Kafka and of Kohort."""
    directory: Path = tmp_path_factory.mktemp("secure")
    ours = {"connection.failed.authentication.delay.ms": "0"}
    kafka = SecureKafka(directory / "kafka")
    with kafka, SecureKohort(directory / "kohort", overrides=ours) as kohort:
        yield [kafka.ports, kohort.ports]


def chosen(client: RawClient) -> None:
    assert choose(client, "SCRAM-SHA-256") == 0


def halfway(client: RawClient) -> bytes:
    """The first of two tokens is said and answered; what the second one is."""
    chosen(client)
    rules = scram_rules("SCRAM-SHA-256", USER, PASSWORD)
    proof = rules.answer(say(client, rules.first()).auth_bytes)
    assert proof is not None
    return proof


def again(client: RawClient) -> None:
    """Somebody who is in has begun to come again."""
    assert say(client, halfway(client)).error_code == 0
    chosen(client)


STATES: Final = {"chosen": chosen, "halfway": halfway, "again": again}


@pytest.mark.parametrize("state", STATES)
def test_what_comes_too_early_is_answered_alike(both: list[Mapping[str, int]], state: str) -> None:
    listener = "SHORT" if state == "again" else "SASL_PLAINTEXT"
    differ = {}
    for number, (name, frame) in enumerate(FRAMES.items()):
        told = []
        for ports in both:
            # A client that fails often is answered later: each comes from another address.
            with RawClient(ports[listener], source=f"127.0.3.{number + 1}") as client:
                STATES[state](client)
                told.append(answer_to(client, frame))
        if len(set(told)) > 1:
            differ[name] = told
    assert not differ


def answer_to(client: RawClient, frame: bytes) -> str:
    """Its bytes; nothing if the connection is closed without one. Both ways it is closed."""
    client.send(framed(frame))
    try:
        told = client.receive().hex()
    except (ConnectionError, AssertionError):
        return ""
    assert client.is_closed()
    return told
