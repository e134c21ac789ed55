"""Clients that begin TLS or SASL and do not go on: at every byte, by leaving and by silence."""

import itertools
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from kohort.protocol.messages.api_versions import ApiVersionsRequest
from tests.support import messages as m
from tests.support.brokers.certificates import Authority
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.measures.watch import MIB, resident_bytes, undisturbed, warmed_up
from tests.support.network.wire import framed, request_body
from tests.support.waiting import wait_until

TIMEOUT_S = 2
ARRIVALS_MAX = 1_000
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: leaves with RST instead of FIN."""


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def attempt(mechanism: str, *tokens: bytes) -> bytes:
    """Return all requests of a login that does not wait for answers."""
    said = [request_body(m.SaslHandshakeRequest(mechanism=mechanism), 1)]
    said += [request_body(m.SaslAuthenticateRequest(auth_bytes=token), 2) for token in tokens]
    return b"".join(map(framed, said))


class Guarded(KohortServer):
    """It lets few be on their way in, and not for long."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.authority = Authority(directory / "certificates")
        self.ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        listeners += [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        self.overrides |= {
            "listeners": ",".join(listeners),
            "ssl.keystore.location": str(self.authority.issue("broker", "IP:127.0.0.1")),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "kohort.authentication.timeout.ms": str(TIMEOUT_S * 1_000),
            "kohort.unauthenticated.connections.max": str(ARRIVALS_MAX),
            "connection.failed.authentication.delay.ms": "10",
        }

    def descriptors(self) -> list[str]:
        """What each open descriptor is of."""
        found = []
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(str(one.readlink()))
        return sorted(found)

    def faults(self) -> list[str]:
        text = self.log_file.read_text()
        return [
            line for line in text.splitlines() if "Internal error" in line or "Traceback" in line
        ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as server:
        warmed_up(server)
        for port in server.ports.values():
            # What OpenSSL and the threads keep for ever is made now.
            leave(port, client_hello() + SASL["PLAIN"], len(SASL["PLAIN"]), resets=False)
        yield server


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Guarded) -> Iterator[None]:
    before = server.descriptors()
    with undisturbed(server):
        yield
    wait_until(
        lambda: len(server.descriptors()) <= len(before),
        lambda: f"all descriptors to come back: {before} before, {server.descriptors()} now",
    )
    assert not server.faults()


VERSIONS = framed(request_body(ApiVersionsRequest(), 0))
SASL = {
    "PLAIN": VERSIONS + attempt("PLAIN", b"\0alice\0wrong"),
    "SCRAM-SHA-256": VERSIONS + attempt("SCRAM-SHA-256", b"n,,n=alice,r=x", b"c=biws,r=xyz,p=AAAA"),
    "SCRAM-SHA-512": VERSIONS + attempt("SCRAM-SHA-512", b"n,a=bob,n=alice,r=x"),
    "none": VERSIONS + attempt("GSSAPI"),
}


def leave(port: int, said: bytes, cut: int, *, resets: bool) -> None:
    """Say a part of it and go, with or without a goodbye."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        if resets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        # It may have been told no, and be closed already.
        with suppress(ConnectionError):
            one.sendall(said[:cut])


@pytest.mark.parametrize("mechanism", SASL)
def test_who_leaves_in_the_middle_of_sasl_leaves_nothing(
    server: Guarded, mechanism: str, long_form: bool
) -> None:
    said = SASL[mechanism]
    for cut in range(0, len(said) + 1, 1 if long_form else 17):
        for resets in (False, True):
            leave(server.ports["SASL_PLAINTEXT"], said, cut, resets=resets)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_leaves_in_the_middle_of_tls_leaves_nothing(
    server: Guarded, version: ssl.TLSVersion, long_form: bool
) -> None:
    context = ssl.create_default_context(cafile=server.authority.certificate)
    context.minimum_version = context.maximum_version = version
    for cut in itertools.count(0, 1 if long_form else 61):
        is_whole = False
        for resets in (False, True):
            is_whole = leave_tls(server.ports["SASL_SSL"], context, cut, resets=resets)
        if is_whole:
            return


def leave_tls(port: int, context: ssl.SSLContext, cut: int, *, resets: bool) -> bool:
    """Shake hands until so many bytes are sent, and go; whether the handshake was over by then."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    left = cut
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        if resets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        while True:
            is_over = False
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                is_over = True
            data = outgoing.read()
            one.sendall(data[:left])
            if len(data) > left:
                return False
            if is_over:
                return True
            left -= len(data)
            incoming.write(one.recv(65_536))


def test_thousands_that_leave_in_the_middle_are_forgotten(server: Guarded, long_form: bool) -> None:
    hello = client_hello()
    for number in range(10_000 if long_form else 100):
        said = (hello, SASL["SCRAM-SHA-256"])[number % 2]
        port = server.ports[("SSL", "SASL_PLAINTEXT")[number % 2]]
        leave(port, said, number * 7 % len(said), resets=number % 3 == 0)


class Silent:
    """Connections whose ends are noted by a thread of its own, so that none is noted late."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._opened_s: dict[socket.socket, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.lasted_s: list[float] = []
        """How long each connection was open, for those that the broker has closed."""
        self.most_late_s = 0.0
        """The most that this thread itself was late: the broker may be as late on this machine."""

    def open(self, port: int, said: bytes) -> None:
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._opened_s[one] = time.monotonic()
        with suppress(ConnectionError):
            one.sendall(said)
        one.setblocking(False)
        self._selector.register(one, selectors.EVENT_READ)

    def _watch(self) -> None:
        while not self._is_over.is_set():
            began_s = time.monotonic()
            found = self._selector.select(0.05)
            if not found:
                self.most_late_s = max(self.most_late_s, time.monotonic() - began_s - 0.05)
            for key, _ in found:
                self._read(key.fileobj)  # type: ignore[arg-type]  # Only sockets are registered.

    def _read(self, one: socket.socket) -> None:
        # They are told nothing, or their part of a handshake, and closed.
        try:
            if one.recv(65_536):
                return
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self._selector.unregister(one)
        self.lasted_s.append(time.monotonic() - self._opened_s.pop(one))
        one.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        for one in self._opened_s:
            one.close()
        self._selector.close()


@pytest.mark.parametrize(
    "count",
    [
        60,
        pytest.param(ARRIVALS_MAX, marks=pytest.mark.long),
        pytest.param(7 * ARRIVALS_MAX, marks=pytest.mark.long),
    ],
)
def test_who_stays_silent_is_gone_in_time_and_so_are_many(server: Guarded, count: int) -> None:
    """With more than are let be, the oldest make room at once."""
    said = {
        "SSL": (b"", client_hello()[:200], client_hello()),
        "SASL_SSL": (b"", client_hello()),
        "SASL_PLAINTEXT": (b"", SASL["PLAIN"][:60], VERSIONS, b"\0\0\xff\xff" + bytes(100)),
    }
    before = len(server.descriptors())
    most = 0
    with Silent() as silent:
        for number in range(count):
            listener = list(said)[number % 3]
            silent.open(server.ports[listener], said[listener][number // 3 % len(said[listener])])
            if number % 50 == 0:
                most = max(most, len(server.descriptors()) - before)
        wait_until(lambda: len(silent.lasted_s) == count, "all to be closed", timeout_s=60)
    # Some that are accepted and not yet counted.
    assert most <= ARRIVALS_MAX + 100
    last_s, first_s = max(silent.lasted_s), min(silent.lasted_s)
    print(f"{count}: open for {first_s:.2f} to {last_s:.2f} s, late by {silent.most_late_s:.2f} s")
    assert last_s <= TIMEOUT_S + 2 + silent.most_late_s
    if count < ARRIVALS_MAX:
        assert first_s >= TIMEOUT_S - 0.1


@pytest.mark.long
def test_large_tokens_that_come_slowly_take_no_more_than_has_come(server: Guarded) -> None:
    """A part of what may come before authentication, on many connections, in no hurry; then all are
    closed as soon as those that say nothing.
    """
    frame = framed(bytes(524_288))
    before_bytes, came_bytes, taken_bytes = resident_bytes(server), 0, 0
    crowd = [
        socket.create_connection(("127.0.0.1", server.ports["SASL_PLAINTEXT"]), timeout=60)
        for _ in range(ARRIVALS_MAX)
    ]
    opened_s = time.monotonic()
    with undisturbed(server, more_bytes_max=32 * MIB):
        for begin in range(0, 32_000, 8_000):
            for one in crowd:
                with suppress(OSError):
                    one.sendall(frame[begin : begin + 8_000])
                    came_bytes += 8_000
            taken_bytes = resident_bytes(server) - before_bytes
            print(f"{came_bytes} bytes came, and {taken_bytes} are taken")
            time.sleep(0.05)
        # Most of them were open for all of that time.
        assert came_bytes > 24_000 * ARRIVALS_MAX
        assert taken_bytes <= 4 * came_bytes
        for one in crowd:
            with suppress(ConnectionError):
                assert one.recv(1) == b""
            one.close()
        lasted_s = time.monotonic() - opened_s
        print(f"all are closed {lasted_s:.2f} s after the last was opened")
        assert lasted_s <= TIMEOUT_S + 20
