"""Certificates that are renewed while they are in use."""

import dataclasses
import logging
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kohort.client.core.errors import ConfigError
from kohort.client.net.security import SecurityConfig
from kohort.client.net.tls_files import FILE_BYTES_MAX, RenewedContext, TlsFiles, TlsFilesError
from tests.support.brokers.certificates import Authority


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    first, second = (Authority(tmp_path_factory.mktemp(name)) for name in ("first", "second"))
    first.issue("client", "DNS:client")
    second.issue("client", "DNS:client")
    return first, second


class Place:
    """Where the client has its files."""

    def __init__(self, directory: Path) -> None:
        self.ca, self.cert, self.key = (directory / name for name in ("ca.pem", "c.pem", "c.key"))

    def take(self, authority: Authority) -> None:
        """Write all of them."""
        directory = authority.directory
        self.ca.write_bytes(authority.certificate.read_bytes())
        self.cert.write_bytes((directory / "client.crt").read_bytes())
        self.key.write_bytes((directory / "client.key").read_bytes())

    @property
    def files(self) -> TlsFiles:
        return TlsFiles(cafile=str(self.ca), certfile=str(self.cert), keyfile=str(self.key))


@pytest.fixture
def place(tmp_path: Path, authorities: tuple[Authority, Authority]) -> Place:
    found = Place(tmp_path)
    found.take(authorities[0])
    return found


def serials(context: ssl.SSLContext) -> set[Any]:
    """Which authorities it trusts."""
    return {one["serialNumber"] for one in context.get_ca_certs()}


def test_an_authority_that_is_replaced_is_not_trusted_any_more(
    place: Place, authorities: tuple[Authority, Authority], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    renewed = RenewedContext(TlsFiles(cafile=str(place.ca)))
    before = serials(renewed.context())
    assert len(before) == 1
    place.ca.write_bytes(authorities[1].certificate.read_bytes())
    after = serials(renewed.context())
    assert len(after) == 1
    assert before.isdisjoint(after)
    assert caplog.text.count("certificates have changed; new connections use them") == 1


def test_a_link_that_points_elsewhere_is_a_change(
    tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    """Kubernetes replaces secrets so."""
    for name, authority in zip(("one", "two"), authorities, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.pem").write_bytes(authority.certificate.read_bytes())
    data = tmp_path / "data"
    data.symlink_to("one")
    renewed = RenewedContext(TlsFiles(cafile=str(data / "ca.pem")))
    before = serials(renewed.context())
    other = tmp_path / "other"
    other.symlink_to("two")
    other.replace(data)
    assert before.isdisjoint(serials(renewed.context()))


@pytest.mark.parametrize("harm", ["half", "empty", "gone", "huge", "certificate before its key"])
def test_what_cannot_be_loaded_leaves_what_was_there(
    place: Place,
    authorities: tuple[Authority, Authority],
    caplog: pytest.LogCaptureFixture,
    harm: str,
) -> None:
    renewed = RenewedContext(place.files)
    context = renewed.context()
    whole = place.ca.read_bytes()
    match harm:
        case "half":
            place.ca.write_bytes(whole[: len(whole) // 2])
        case "empty":
            place.ca.write_bytes(b"")
        case "gone":
            place.ca.unlink()
        case "huge":
            os.truncate(place.ca, FILE_BYTES_MAX + 1)
        case _:
            place.cert.write_bytes((authorities[1].directory / "client.crt").read_bytes())
    assert all(renewed.context() is context for _ in range(3))
    assert caplog.text.count("still using the previous certificates") == 1
    place.take(authorities[1])
    assert renewed.context() is not context
    assert renewed.context() is renewed.context()


def test_the_password_of_a_key_is_not_asked_for_at_a_terminal(place: Place, tmp_path: Path) -> None:
    command = ["openssl", "pkcs8", "-topk8", "-passout", "pass:secret", "-in", str(place.key)]
    encrypted = subprocess.run(command, check=True, capture_output=True).stdout
    place.key.write_bytes(encrypted)
    with pytest.raises(TlsFilesError, match=r"^ssl_certfile: .* and ssl_password is not set$"):
        RenewedContext(place.files)
    with pytest.raises(TlsFilesError, match=r"^ssl_password: it does not decrypt the private key$"):
        RenewedContext(dataclasses.replace(place.files, password="wrong"))
    RenewedContext(dataclasses.replace(place.files, password="secret"))
    place.key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIH\n")
    with pytest.raises(TlsFilesError, match=r"ssl_certfile: .* must contain its private key"):
        RenewedContext(place.files)


def test_a_key_of_another_certificate_is_told_so(
    place: Place, authorities: tuple[Authority, Authority]
) -> None:
    place.cert.write_bytes((authorities[1].directory / "client.crt").read_bytes())
    with pytest.raises(TlsFilesError, match="the private key does not match the first certificate"):
        RenewedContext(place.files)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl_cafile": "/not/there.pem"}, "ssl_cafile: '/not/there.pem' cannot be read: No such"),
        ({"ssl_cadata": "x"}, "ssl_cadata: the text cannot be read as PEM"),
        ({"ssl_cafile": "a", "ssl_cadata": "b"}, "ssl_cadata: ssl_cafile is set as well"),
        ({"ssl_keyfile": "k"}, "ssl_keyfile: is set, but ssl_certfile is not"),
        ({"ssl_password": "hidden"}, "ssl_password: is set, but ssl_certfile is not"),
        ({"ssl_certfile": "/not/there.pem"}, "ssl_certfile: '/not/there.pem' cannot be read"),
        (
            {"ssl_cafile": "a", "ssl_context": ssl.create_default_context()},
            "ssl_cafile and ssl_con",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "a"}, "ssl_cafile is set, but"),
        ({"security_protocol": "PLAINTEXT", "ssl_check_hostname": False}, "ssl_check_hostname is"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SecurityConfig(**({"security_protocol": "SSL"} | settings))
    assert str(refused.value).startswith(said)
    assert "hidden" not in str(refused.value)
