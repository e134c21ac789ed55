"""Key stores that operators get wrong: each is told what is wrong with it, and what to do."""

import logging
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from kohort.broker.config import BrokerConfig
from kohort.broker.security.errors import StoreError
from kohort.broker.security.tls_context import load_tls
from kohort.broker.security.tls_listener import TlsListener
from tests.support.brokers.certificates import Authority

NAMES = "DNS:localhost,DNS:*.example.com,IP:127.0.0.1,IP:::1"
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("broker", NAMES)
    made.issue("other", NAMES)
    made.issue_store("packed", NAMES, "secret")
    return made


def part(authority: Authority, name: str) -> bytes:
    return (authority.directory / name).read_bytes()


def encrypted(authority: Authority, name: str) -> bytes:
    command = ["openssl", "pkcs8", "-topk8", "-passout", "pass:secret", "-in"]
    made = subprocess.run(
        [*command, str(authority.directory / name)], check=True, capture_output=True
    )
    return made.stdout


def listener(store: Path, **settings: str) -> TlsListener:
    config = BrokerConfig(ssl_keystore_location=str(store), **settings)  # type: ignore[arg-type]
    return TlsListener("SSL", lambda: config, authenticates=True)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("other.key", "broker.crt"), "the private key is not that of the first certificate"),
        (("broker.key", "ca.pem", "broker.crt"), "the broker's own certificate has to come first"),
        (("broker.crt",), "has no private key in it; `cat KEY CERTIFICATE > STORE`"),
        (("broker.key",), "has no certificate in it; `cat KEY CERTIFICATE > STORE`"),
        ((), "is no PEM, in which keys and certificates begin with -----BEGIN"),
        (("packed.p12",), "is no PEM. A PKCS12 store needs ssl.keystore.type=PKCS12"),
    ],
)
def test_a_store_that_lacks_something_is_told_what(
    authority: Authority, tmp_path: Path, names: tuple[str, ...], told: str
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(b"".join(part(authority, name) for name in names))
    with pytest.raises(StoreError, match=f"^listener SSL: .*{re.escape(told)}"):
        listener(store)


def test_a_damaged_certificate_is_told_how_to_find_it(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(part(authority, "broker.key") + part(authority, "broker.crt")[:200])
    with pytest.raises(StoreError, match="damaged; `openssl pkey -in STORE -noout`"):
        listener(store)


@pytest.mark.parametrize("kind", ["keystore", "truststore"])
def test_a_store_of_java_is_told_how_to_convert_it(
    authority: Authority, tmp_path: Path, kind: str
) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    stores = {"ssl_keystore_location": str(authority.directory / "broker.pem")}
    config = BrokerConfig(**{**stores, f"ssl_{kind}_location": str(store)})  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=rf"ssl.{kind}.location: .*only Java.*keytool -import"):
        load_tls(config, "SSL")


def test_a_trust_store_without_certificates_is_told_so(authority: Authority) -> None:
    directory = authority.directory
    with pytest.raises(StoreError, match=r"ssl\.truststore\.location: .*has no certificate in it"):
        listener(directory / "broker.pem", ssl_truststore_location=str(directory / "broker.key"))


def test_a_right_password_is_not_called_wrong_where_key_and_certificate_differ(
    authority: Authority, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(encrypted(authority, "other.key") + part(authority, "broker.crt"))
    with pytest.raises(StoreError, match="the private key is not that of the first certificate"):
        listener(store, ssl_key_password="secret")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ssl_keystore_password": "no"}, "ssl.keystore.password is wrong"),
        ({}, "ssl.keystore.password is not set"),
    ],
)
def test_the_password_of_a_packed_store_is_named(
    authority: Authority, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(StoreError, match=told):
        listener(authority.directory / "packed.p12", ssl_keystore_type="PKCS12", **settings)


def test_a_cipher_suite_is_told_by_the_name_that_was_given(authority: Authority) -> None:
    config = BrokerConfig(
        ssl_keystore_location=str(authority.directory / "broker.pem"), ssl_cipher_suites=("TLS_X",)
    )
    with pytest.raises(StoreError, match=r"ssl\.cipher\.suites has TLS_X, which"):
        load_tls(config, "SSL")


@pytest.mark.parametrize(
    ("begins", "ends", "told"),
    [
        (-2 * DAY, -DAY, "The certificate of listener SSL expired at "),
        (DAY, 2 * DAY, "The certificate of listener SSL is not valid before "),
        (-DAY, DAY, None),
    ],
)
def test_a_certificate_that_is_not_valid_now_is_warned_of(
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    begins: timedelta,
    ends: timedelta,
    told: str | None,
) -> None:
    key = load_pem_private_key(part(authority, "broker.key"), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())
    )
    store = tmp_path / "store.pem"
    store.write_bytes(part(authority, "broker.key") + made.public_bytes(Encoding.PEM))
    store.chmod(0o600)
    # At the start, and when it is renewed.
    one = listener(store)
    one.reload()
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert len(warnings) == (0 if told is None else 2)
    assert all(warning.startswith(str(told)) for warning in warnings)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_private_key_for_everybody_to_read_is_warned_of(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(part(authority, "broker.pem"))
    store.chmod(mode)
    listener(store)
    assert ("can be read by every user" in caplog.text) == (mode == 0o644)


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [
        ("localhost", False),
        ("LOCALHOST.", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("0:0::1", False),
        ("broker.example.com", False),
        ("example.com", True),
        ("a.broker.example.com", True),
        ("127.0.0.2", True),
        ("broker", True),
    ],
)
def test_a_host_that_the_certificate_is_not_for_is_warned_of(
    authority: Authority, caplog: pytest.LogCaptureFixture, host: str, is_warned: bool
) -> None:
    one = listener(authority.directory / "broker.pem")
    caplog.clear()
    one.warn_of_name(host)
    told = f"advertises {host}, but its certificate names *.example.com, 127.0.0.1, ::1"
    assert (told in caplog.text) == is_warned
    assert bool(caplog.records) == is_warned
