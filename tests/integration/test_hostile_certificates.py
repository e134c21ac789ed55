"""Certificates that clients should not have: none lets anybody in, and none an internal error."""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kohort.broker.network.timeouts import CloseReason
from kohort.protocol.messages.metadata import MetadataRequest
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import framed, request_body
from tests.support.waiting import wait_until

NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)
RULES: Final = r"RULE:^CN=([a-z]+),OU=.*$/$1/,RULE:^O=([^,]*)$/$1/L,DEFAULT"


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def issued(
    by: Pair | None,
    subject: x509.Name,
    *extensions: x509.ExtensionType,
    begin: datetime = NOW - DAY,
    end: datetime = NOW + DAY,
) -> Pair:
    """Signed by another one's key, or by its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    for one in extensions:
        builder = builder.add_extension(one, critical=False)
    signed = builder.sign(key if by is None else by.key, hashes.SHA256())
    return Pair(signed, key)


def authority_under(by: Pair | None, name: str) -> Pair:
    return issued(by, common(name), x509.BasicConstraints(ca=True, path_length=None))


class Door:
    """A broker that wants certificates of its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.root = Pair(
            x509.load_pem_x509_certificate(self.authority.certificate.read_bytes()), key
        )
        self.ports = {name: free_port() for name in ("PLAINTEXT", "MUTUAL", "MAPPED")}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        self._broker = BrokerThread(
            directory / "data",
            overrides={
                "listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,MAPPED:SSL",
                "ssl.keystore.location": str(self.authority.issue("broker", "IP:127.0.0.1")),
                "ssl.truststore.location": str(self.authority.certificate),
                "ssl.client.auth": "required",
                "listener.name.mapped.ssl.principal.mapping.rules": RULES,
            },
        )

    def __enter__(self) -> Self:
        self._broker.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._broker.stop()

    def shown(
        self, pair: Pair, chain: Sequence[Pair] = (), *, listener: str = "MUTUAL"
    ) -> str | None:
        """The principal that a certificate makes of its owner; None if it is not let in."""
        context = self._context(pair, chain)
        plain = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=30)
        try:
            with closing(context.wrap_socket(plain, server_hostname="127.0.0.1")) as client:
                client.sendall(framed(request_body(MetadataRequest(topics=[]), 9)))
                if not client.recv(1):
                    return None
                own = client.getsockname()[1]
                return self._broker.call(lambda: self._principal_at(own))
        except OSError:
            return None
        finally:
            plain.close()

    def _context(self, pair: Pair, chain: Sequence[Pair]) -> ssl.SSLContext:
        store = self.directory / "shown.pem"
        pem = [pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
        pem += [one.certificate.public_bytes(Encoding.PEM) for one in (pair, *chain)]
        store.write_bytes(b"".join(pem))
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(store)
        return context

    def _principal_at(self, port: int) -> str:
        for one in self._broker.broker.network._connections:
            peer = one._transport.get_extra_info("peername")
            if peer and peer[1] == port:
                return one.info.session.principal.name
        raise AssertionError("it is not connected")

    def faults(self) -> int:
        closed = self._broker.broker.metrics.edge.closed
        return self._broker.call(lambda: closed.get(CloseReason.FAULT, 0))

    def open_connections(self) -> int:
        return self._broker.call(lambda: self._broker.broker.network.connection_count)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with Door(tmp_path_factory.mktemp("certificates")) as door:
        yield door


@pytest.fixture(autouse=True)
def _nothing_is_left(door: Door) -> Iterator[None]:
    yield
    assert door.faults() == 0
    wait_until(lambda: door.open_connections() == 0, "all connections end")


CLIENT: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
SERVER: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


def test_one_that_is_as_it_should_be_is_let_in(door: Door) -> None:
    assert door.shown(issued(door.root, common("alice"), CLIENT)) == "CN=alice"
    assert door.shown(issued(door.root, common("alice"))) == "CN=alice"
    between = authority_under(door.root, "between")
    assert door.shown(issued(between, common("bob")), [between]) == "CN=bob"


def refused_ones(root: Pair) -> Iterator[tuple[str, Pair, list[Pair]]]:
    """Certificates, each with the chain that is shown with it."""
    alice = common("alice")
    yield "of the past", issued(root, alice, begin=NOW - 2 * DAY, end=NOW - DAY), []
    yield "of the future", issued(root, alice, begin=NOW + DAY, end=NOW + 2 * DAY), []
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    expired = issued(root, common("x"), is_authority, begin=NOW - 2 * DAY, end=NOW - DAY)
    yield "by an authority of the past", issued(expired, alice), [expired]
    stranger = authority_under(None, "authority of the tests")
    yield "by a namesake of the authority", issued(stranger, alice), []
    yield "with that namesake", issued(stranger, alice), [stranger]
    yield "by its own key", issued(None, alice), []
    plain = issued(root, common("plain"))
    yield "by one that is no authority", issued(plain, common("bob")), [plain]
    no_authority = issued(root, alice, x509.BasicConstraints(ca=False, path_length=None))
    yield "by one that says it is none", issued(no_authority, common("bob")), [no_authority]
    yield "for servers", issued(root, alice, SERVER), []


def test_certificates_that_a_client_should_not_have_are_refused(door: Door) -> None:
    for what, pair, chain in refused_ones(door.root):
        assert door.shown(pair, chain) is None, what


def test_a_thousand_other_names_change_nothing_and_too_many_are_refused(door: Door) -> None:
    for count, principal in ((1_000, "CN=alice"), (20_000, None)):
        names = x509.SubjectAlternativeName(
            [x509.DNSName(f"{number}.example.org") for number in range(count)]
        )
        assert door.shown(issued(door.root, common("alice"), names)) == principal


def relative(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName([x509.NameAttribute(*one) for one in attributes])


UNIT, ORGANISATION = NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME


@pytest.mark.parametrize(
    ("subject", "principal", "mapped"),
    [
        (x509.Name([]), "", ""),
        (common("alice\\00"), "CN=alice\\\\00", "CN=alice\\\\00"),
        (common("alice,OU=x"), "CN=alice\\,OU\\=x", "CN=alice\\,OU\\=x"),
        (common("alice\n,OU=x"), "CN=alice\n\\,OU\\=x", "CN=alice\n\\,OU\\=x"),
        (common("\u202eecila"), "CN=\u202eecila", "CN=\u202eecila"),
        (
            x509.Name([relative((NameOID.COMMON_NAME, "a"), (UNIT, "b"))]),
            "CN=a+OU=b",
            "CN=a+OU=b",
        ),
        (
            x509.Name([relative((UNIT, "x")), relative((NameOID.COMMON_NAME, "alice"))]),
            "CN=alice,OU=x",
            "alice",
        ),
        (x509.Name([relative((ORGANISATION, "ACME"))]), "O=ACME", "acme"),
        (
            x509.Name([relative((UNIT, "x" * 60)) for _ in range(50)]),
            ",".join(["OU=" + "x" * 60] * 50),
            ",".join(["OU=" + "x" * 60] * 50),
        ),
        (x509.Name([relative((UNIT, "x" * 60)) for _ in range(70)]), None, None),
        (common("alice\0.evil"), None, None),
        (x509.Name([relative((UNIT, "\0")), relative((NameOID.COMMON_NAME, "alice"))]), None, None),
    ],
    ids=[
        "empty", "backslash", "comma", "line", "backwards", "several in one", "unit", "upper case",
        "3 KiB", "above 4 KiB", "NUL in a name", "NUL beside a name",
    ],
)  # fmt: skip
def test_odd_subjects_are_no_one_else(
    door: Door, subject: x509.Name, principal: str | None, mapped: str | None
) -> None:
    pair = issued(door.root, subject)
    assert door.shown(pair) == principal
    assert door.shown(pair, listener="MAPPED") == mapped
