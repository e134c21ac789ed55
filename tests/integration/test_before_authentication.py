"""Every API in every version to each kind of listener, before the client has said who it is: what
is answered, and how many bodies of requests the broker reads for it.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from kohort.broker.dispatch.registry import Route
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import framed, header, request_body

HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "PASSWORD": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "MUTUAL": "SSL",
}
KEYS: Final = (*range(-1, 96), 999)
OF_NO_API: Final = (-1, 0, 1, 20)
"""Versions in which an API is asked for that is not served."""
AUTHENTICATION: Final = {
    HANDSHAKE: m.SaslHandshakeRequest(mechanism="PLAIN"),
    VERSIONS: m.ApiVersionsRequest(client_software_name="x", client_software_version="1"),
    AUTHENTICATE: m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"),
}

Asked = tuple[int, int]
"""Key and version."""


class CountedBroker:
    """A broker that counts the bodies of requests that it reads, by key and version."""

    def __init__(self, broker: BrokerThread, ports: dict[str, int], authority: Authority) -> None:
        self.broker = broker
        self.ports = ports
        self.read: list[Asked] = []
        self.noted = threading.Semaphore(0)
        """One more for each of them."""
        self._tls = ssl.create_default_context(cafile=str(authority.certificate))
        broker.call(self._count)
        self.apis = broker.broker.router.apis

    def _count(self) -> None:
        router = self.broker.broker.router
        for key, api in router.apis.items():
            for version in range(api.versions.low, api.versions.high + 1):
                route = router.find(key, version)
                assert route is not None
                route.decode = self._counted((key, version), route)

    def _counted(self, asked: Asked, route: Route) -> Callable[..., tuple[Any, int]]:
        decode = route.decode

        def counted(*arguments: Any) -> tuple[Any, int]:  # noqa: ANN401 - as codecs are.
            self.read.append(asked)
            self.noted.release()
            return decode(*arguments)

        return counted

    def is_served(self, key: int, version: int) -> bool:
        return key in self.apis and version in self.apis[key].versions

    def asked(self) -> Iterator[Asked]:
        """All keys, each in all versions and in those that are next to them."""
        for key in KEYS:
            api = self.apis.get(key)
            if api is None:
                yield from ((key, version) for version in OF_NO_API)
            else:
                low, high = api.versions.low, api.versions.high
                yield from ((key, version) for version in range(low - 1, high + 2))

    def frame(self, key: int, version: int) -> bytes:
        """A request that can be read if it is one of authentication, otherwise zeros."""
        if key in AUTHENTICATION and self.is_served(key, version):
            return framed(request_body(AUTHENTICATION[key], version))
        return framed(header(key, version) + bytes(64))

    def connect(self, listener: str) -> socket.socket:
        """Over TLS where the listener has it; without a certificate of the client's."""
        plain = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=30)
        if not LISTENERS[listener].endswith("SSL"):
            return plain
        return self._tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def answered(self, listener: str, asked: Asked) -> bytes | None:
        """The answer to the only request of a connection; None if it is closed without one."""
        with closing(self.connect(listener)) as client:
            try:
                client.sendall(self.frame(*asked))
                size = client.recv(4)
                return client.recv(struct.unpack(">i", size)[0]) if size else None
            except (ConnectionError, ssl.SSLError):
                return None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedBroker]:
    directory: Path = tmp_path_factory.mktemp("listeners")
    authority = Authority(directory / "certificates")
    ports = {name: free_port() for name in LISTENERS}
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    overrides = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    with BrokerThread(directory / "data", overrides=overrides) as thread:
        yield CountedBroker(thread, ports, authority)


@pytest.fixture(autouse=True)
def nothing_read(broker: CountedBroker) -> None:
    broker.read.clear()
    broker.noted = threading.Semaphore(0)


@pytest.mark.parametrize("listener", ["PASSWORD", "BOTH"])
def test_before_sasl_only_apis_of_authentication_are_read_and_answered(
    broker: CountedBroker, listener: str
) -> None:
    answered, expected = [], []
    for key, version in broker.asked():
        if broker.answered(listener, (key, version)) is not None:
            answered.append((key, version))
        # Who asks for versions is told them in the lowest one, if need be.
        if key == VERSIONS or (key == HANDSHAKE and broker.is_served(key, version)):
            expected.append((key, version))
    assert answered == expected
    assert broker.read == [one for one in expected if broker.is_served(*one)]


def test_a_token_is_answered_once_a_mechanism_is_chosen(broker: CountedBroker) -> None:
    for version in range(broker.apis[AUTHENTICATE].versions.high + 1):
        with closing(broker.connect("BOTH")) as client:
            for key in (HANDSHAKE, AUTHENTICATE):
                client.sendall(broker.frame(key, 1 if key == HANDSHAKE else version))
                size = client.recv(4)
                assert client.recv(struct.unpack(">i", size)[0])
    assert broker.read == [
        one for version in range(3) for one in ((HANDSHAKE, 1), (AUTHENTICATE, version))
    ]


def test_without_the_certificate_that_is_required_nothing_is_read_or_answered(
    broker: CountedBroker,
) -> None:
    for asked in broker.asked():
        assert broker.answered("MUTUAL", asked) is None, asked
    assert broker.read == []


def test_where_nothing_is_required_everything_that_is_served_is_read(
    broker: CountedBroker,
) -> None:
    """The count of the tests above counts."""
    served = [one for one in broker.asked() if broker.is_served(*one)]
    for asked in served:
        with closing(broker.connect("PLAINTEXT")) as client:
            client.sendall(broker.frame(*asked))
            assert broker.noted.acquire(timeout=30), asked
    assert broker.read == served
