"""What has been done to Kafka brokers, tried on this one; each by the name of its CVE.

Others have their place with what they are about: nonces and authorization ids of SCRAM
(CVE-2024-56128, CVE-2017-12610) in tests/unit/broker/core/security/test_scram.py, unsigned and
unchecked tokens (CVE-2026-110985, CVE-2026-33557) in test_oauth.py, login modules (CVE-2023-25194)
in test_sasl.py, the rights to fetch as a replica and to write in a transaction (CVE-2018-1288,
CVE-2018-17196) in test_rights_asked.py, rules that stay when another of their name goes
(CVE-2024-27309) in tests/unit/broker/core/security/test_authorizer.py.
"""

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from kohort.broker.handlers import load_handlers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.requests import create_topics
from tests.support.network.wire import RawClient, framed, header

TOPIC = "t"


@pytest.fixture(scope="module")
def sasl_port() -> int:
    return free_port()


def settings(sasl_port: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, sasl_port: int) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("data"), overrides=settings(sasl_port)) as made:
        with RawClient(made.port) as admin:
            create_topics(admin, TOPIC)
        yield made


TAGS = bytes.fromhex("80ade209")  # 20,000,000
MANY = bytes.fromhex("ffffffff0f")  # 2^32 - 1, the most that there is: one more than the length.
TWO_TO_THE_31 = bytes.fromhex("8180808008")
FRAME_BYTES_MAX = 524_288
BUSY_S = 0.1
TAKEN_BYTES = 1 << 20


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def full_of_tags() -> bytes:
    """The most empty tags that fit into a frame before authentication, and their true number."""
    tags: list[bytes] = []
    left = FRAME_BYTES_MAX - 64
    while left > 8:
        tags.append(varint(len(tags) + 1_000) + b"\0")
        left -= len(tags[-1])
    return varint(len(tags)) + b"".join(tags)


COUNTS = {
    "tags": header(18, 3, tags=TAGS) + bytes(100_000),
    "tags behind": header(18, 3, tags=b"\0") + b"\x02x\x02x" + TAGS + bytes(100_000),
    "tags that are there": header(18, 3, tags=full_of_tags()) + b"\x02x\x02x\0",
    "tags that are there, behind": header(18, 3, tags=b"\0") + b"\x02x\x02x" + full_of_tags(),
    "a tag of 2^31 bytes": header(18, 3, tags=b"\x01\x05" + TWO_TO_THE_31) + bytes(1_000),
    "long text": header(18, 3, tags=b"\0") + MANY + bytes(1_000),
    "text of 2^31": header(18, 4, tags=b"\0") + TWO_TO_THE_31 + bytes(1_000),
    "long second text": header(18, 3, tags=b"\0") + b"\x02x" + MANY + bytes(1_000),
    "long name": header(17, 1) + b"\x7f\xff" + bytes(1_000),
    "name without end": header(17, 0) + b"\x80\x00" + bytes(1_000),
    "long token": header(36, 2, tags=b"\0") + MANY + bytes(1_000),
    "token of 2^31": header(36, 2, tags=b"\0") + TWO_TO_THE_31 + bytes(1_000),
    "token of 2^31 - 1": header(36, 1) + b"\x7f\xff\xff\xff" + bytes(1_000),
    "tags of a token": header(36, 2, tags=TAGS) + bytes(100_000),
    "array of topics": header(3, 8) + b"\x7f\xff\xff\xff" + bytes(100_000),
    "compact array of topics": header(3, 12, tags=b"\0") + TWO_TO_THE_31 + bytes(100_000),
    "array of resources": header(32, 4, tags=b"\0") + MANY + bytes(100_000),
    "array of groups": header(69, 1, tags=b"\0") + TWO_TO_THE_31 + bytes(100_000),
}


def taken(broker: BrokerThread, port: int, frame: bytes) -> tuple[float, int]:
    """Seconds of the processor that the broker's loop spends on a frame, and bytes that it takes
    at most. Measured one after the other: the second slows the first down.
    """
    busy_s = min(taken_once(broker, port, frame) for _ in range(3))
    tracemalloc.start()
    try:
        taken_once(broker, port, frame)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return busy_s, most_bytes


def taken_once(broker: BrokerThread, port: int, frame: bytes) -> float:
    with RawClient(port) as client:
        began_s = broker.call(time.thread_time)
        client.send(frame)
        assert client.is_closed()
        return broker.call(time.thread_time) - began_s


@pytest.mark.parametrize("kind", COUNTS)
def test_cve_2026_111115_and_111108_counts_before_authentication_cost_nothing(
    broker: BrokerThread, sasl_port: int, kind: str
) -> None:
    busy_s, most_bytes = taken(broker, sasl_port, framed(COUNTS[kind]))
    print(f"{kind}: {busy_s * 1_000:.2f} ms, {most_bytes >> 10} KiB")
    assert busy_s < BUSY_S
    assert most_bytes < TAKEN_BYTES
    with RawClient(sasl_port) as client:
        assert client.is_answered()


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("size", [-1, 524_289, 2**31 - 1])
def test_cve_2022_34917_sizes_before_authentication_claim_no_memory(
    sasl_port: int, size: int
) -> None:
    with RawClient(sasl_port) as client:
        client.send(size.to_bytes(4, "big", signed=True))
        assert client.is_closed()


def test_cve_2026_111073_compressed_telemetry_is_refused() -> None:
    assert not {"PushTelemetry", "GetTelemetrySubscriptions"} & {
        api.name for api in load_handlers().values()
    }


@pytest.mark.usefixtures("broker")
def test_cve_2025_27817_what_security_reads_is_nothing_that_a_topic_has(
    broker: BrokerThread,
) -> None:
    for name in (
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.jaas.config",
        "ssl.keystore.location",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    ):
        config = AlterableConfig(name=name, config_operation=0, value="file:///etc/passwd")
        resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        with RawClient(broker.port) as admin:
            told = admin.call(request, 1, m.IncrementalAlterConfigsResponse)
        assert told.responses[0].error_code == ErrorCode.INVALID_CONFIG
