"""Creates the OpenSSL context of a listener from its settings.

Keys in settings are written to an in-memory file that only this process can open, because `ssl`
reads keys only from files. Errors about an unusable store of keys or certificates name the cause
and the remedy, which OpenSSL's errors do not.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.config import BrokerConfig
from kohort.broker.config.listeners import CONVERSION
from kohort.broker.core.security.certificate import (
    CertificateFields,
    DerError,
    fields_of,
    subject_of,
)
from kohort.broker.security.errors import StoreError

BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_BEGIN: Final = b"-----BEGIN "
_KEY: Final = b"PRIVATE KEY-----"
_OF_JAVA: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""First bytes of JKS and JCEKS stores."""
_DER: Final = b"\x30"
"""First byte of PKCS12 stores, and of keys and certificates in DER."""

_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


def key_store_problem(data: bytes, *, is_file: bool) -> str | None:
    """Return the problem with a PEM key store, such as a missing key; None if it has none."""
    problem = _pem_problem(data, "keystore")
    if problem is not None:
        return problem
    remedy = "; `cat KEY CERTIFICATE > STORE` makes one file of both" if is_file else ""
    if _KEY not in data:
        return f"has no private key in it{remedy}"
    if BEGIN_CERTIFICATE.encode() not in data:
        return f"has no certificate in it{remedy}"
    return None


def trust_store_problem(data: bytes) -> str | None:
    """Return the problem with a PEM trust store; None if it has none."""
    problem = _pem_problem(data, "truststore")
    if problem is None and BEGIN_CERTIFICATE.encode() not in data:
        return f"has no certificate in it, which begins with {BEGIN_CERTIFICATE}"
    return problem


def _pem_problem(data: bytes, kind: str) -> str | None:
    if data.startswith(_OF_JAVA):
        return f"is a Java key store, which only Java reads. Convert it to PEM: {CONVERSION}"
    if _BEGIN in data:
        return None
    if data.startswith(_DER):
        return (
            f"is no PEM. A PKCS12 store needs ssl.{kind}.type=PKCS12; a single certificate in DER "
            "is made PEM by `openssl x509 -inform der -in CERTIFICATE -out CERTIFICATE.pem`"
        )
    return "is no PEM, in which keys and certificates begin with -----BEGIN"


def is_mismatch(error: OSError | ValueError) -> bool:
    """Whether the error means that the key does not belong to the certificate."""
    return getattr(error, "reason", None) in _MISMATCHES


def why_unusable(error: OSError | ValueError) -> str:
    """Return why OpenSSL rejects a store with a key and certificates."""
    if is_mismatch(error):
        return (
            "the private key is not that of the first certificate; the broker's own certificate "
            "has to come first, those of authorities after it"
        )
    reason = getattr(error, "reason", None)
    if reason is not None:
        return str(reason).replace("_", " ").lower()
    if isinstance(error, ssl.SSLError):
        return (
            "a key or certificate in it is damaged; `openssl pkey -in STORE -noout` and "
            "`openssl x509 -in STORE -noout` tell which"
        )
    return getattr(error, "strerror", None) or "it cannot be read"


_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFIED: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_OF_TLS_1_3: Final = ("TLS_AES_", "TLS_CHACHA20_POLY1305_")
_END: Final = "-----END CERTIFICATE-----"
STORE_BYTES_MAX: Final = 4 << 20


class KeyStore(NamedTuple):
    """The subject and other fields of a listener's own certificate."""

    subject: str
    fields: CertificateFields


class Loaded(NamedTuple):
    context: ssl.SSLContext
    own: KeyStore


def load_tls(config: BrokerConfig, listener: str) -> Loaded:
    """Load the stores of a listener; `config` are its effective settings. Reads files.

    Raises:
        StoreError: a store is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[protocol] for protocol in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 1
    _set_ciphers(context, config.ssl_cipher_suites, listener)
    with ExitStack() as stack:
        key_file, chain = stack.enter_context(_key_store(config, listener))
        _load_key(context, key_file, config, listener)
    _load_trust(context, config, listener)
    context.verify_mode = _VERIFIED[config.ssl_client_auth]
    return Loaded(context, _own(chain, listener))


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...], listener: str) -> None:
    older = {name: _openssl_name(name) for name in names if not name.startswith(_OF_TLS_1_3)}
    for name, translated in older.items():
        try:
            context.set_ciphers(translated)
        except ssl.SSLError:
            raise StoreError(
                f"listener {listener}: ssl.cipher.suites has {name}, which OpenSSL does not know"
            ) from None
    if older:
        context.set_ciphers(":".join(older.values()))


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite, given the IANA name."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = (
        cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    )
    parts = [] if exchange == "RSA" else exchange.split("_")
    return "-".join([*parts, *cipher.split("_")])


@contextmanager
def _key_store(config: BrokerConfig, listener: str) -> Iterator[tuple[str, str]]:
    """Yield the path of an in-memory PEM file with the key store, and its certificates as text."""
    if config.ssl_keystore_location is None:
        key, chain = config.ssl_keystore_key or "", config.ssl_keystore_certificate_chain or ""
        data = f"{_lines(key)}\n{_lines(chain)}\n".encode()
        where = "ssl.keystore.key with ssl.keystore.certificate.chain"
        _raise_if(listener, where, key_store_problem(data, is_file=False))
        with _in_memory(data) as path:
            yield path, _lines(chain)
        return
    where = "ssl.keystore.location"
    data = _read(config.ssl_keystore_location, f"listener {listener}: {where}")
    if config.ssl_keystore_type == "PKCS12":
        data = _unpacked(data, config.ssl_keystore_password, listener, where)
    where = f"{where}: {config.ssl_keystore_location}"
    _raise_if(listener, where, key_store_problem(data, is_file=True))
    with _in_memory(data) as path:
        yield path, data.decode("utf-8", "replace")


def _load_key(context: ssl.SSLContext, path: str, config: BrokerConfig, listener: str) -> None:
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        # Without a callback OpenSSL would prompt on the terminal.
        return config.ssl_key_password or ""

    store = f"listener {listener}: the key store"
    try:
        context.load_cert_chain(path, password=password)
    except (OSError, ValueError) as error:
        if asked and not is_mismatch(error):
            what = "is wrong" if config.ssl_key_password else "is not set, and the key is encrypted"
            raise StoreError(f"{store} cannot be used: ssl.key.password {what}") from None
        raise StoreError(f"{store} cannot be used: {why_unusable(error)}") from None
    if config.ssl_key_password is not None and not asked:
        raise StoreError(f"{store} has a key that is not encrypted, but ssl.key.password is set")


def _load_trust(context: ssl.SSLContext, config: BrokerConfig, listener: str) -> None:
    text = config.ssl_truststore_certificates
    where = f"listener {listener}: ssl.truststore.certificates"
    if config.ssl_truststore_location is not None:
        setting = "ssl.truststore.location"
        data = _read(config.ssl_truststore_location, f"listener {listener}: {setting}")
        if config.ssl_truststore_type == "PKCS12":
            data = _unpacked(data, config.ssl_truststore_password, listener, setting)
        setting = f"{setting}: {config.ssl_truststore_location}"
        _raise_if(listener, setting, trust_store_problem(data))
        where = f"listener {listener}: {setting}"
        text = data.decode("utf-8", "replace")
    if text is None:
        return
    try:
        context.load_verify_locations(cadata="\n".join(_certificates(_lines(text))))
    except (ssl.SSLError, ValueError) as error:
        raise StoreError(f"{where} has no certificates that can be read: {error}") from None


def _raise_if(listener: str, where: str, problem: str | None) -> None:
    if problem is not None:
        raise StoreError(f"listener {listener}: {where} {problem}")


def _own(chain: str, listener: str) -> KeyStore:
    try:
        der = ssl.PEM_cert_to_DER_cert(next(iter(_certificates(chain))))
        return KeyStore(subject_of(der), fields_of(der))
    except (DerError, ValueError, StopIteration) as error:
        raise StoreError(f"listener {listener}: its certificate cannot be read: {error}") from None


def _certificates(text: str) -> Iterator[str]:
    for part in text.split(BEGIN_CERTIFICATE)[1:]:
        yield f"{BEGIN_CERTIFICATE}{part.partition(_END)[0]}{_END}\n"


def _lines(text: str) -> str:
    """Restore the line breaks of PEM. A properties file may have spaces instead, as in Kafka; an
    environment variable may have a backslash and the letter n.
    """
    text = text.replace("\\r", "").replace("\\n", "\n")
    if "\n" in text.strip():
        return text
    parts = text.replace("-----BEGIN ", "\n-----BEGIN ").replace("-----END ", "\n-----END ")
    lines = []
    for line in parts.splitlines():
        if line.startswith("-----"):
            head, dashes, body = line.rpartition("-----")
            lines += [head + dashes, *body.split()]
        else:
            lines += line.split()
    return "\n".join(lines)


def _read(path: str, setting: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise StoreError(f"{setting}: {path} cannot be read: {error.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise StoreError(f"{setting}: {path} is too large for a store")
    return data


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("kohort-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _unpacked(data: bytes, password: str | None, listener: str, setting: str) -> bytes:
    """Return a PKCS12 store as PEM; `setting` names its location setting, for error messages."""
    try:
        # An optional package of 16 MiB, needed only for such stores.
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError:
        raise StoreError(
            f"listener {listener}: PKCS12 needs `pip install kohort[oauth]`; without it: "
            "openssl pkcs12 -in STORE -nodes -out STORE.pem"
        ) from None
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        wrong = setting.replace("location", "password")
        raise StoreError(
            f"listener {listener}: {setting} is no PKCS12 store, or {wrong} is "
            f"{'not set' if password is None else 'wrong'}"
        ) from None
    pem = serialization.Encoding.PEM
    parts = []
    if found.key is not None:
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        parts.append(found.key.private_bytes(pem, *plain))
    own = [] if found.cert is None else [found.cert]
    parts += [entry.certificate.public_bytes(pem) for entry in [*own, *found.additional_certs]]
    return b"".join(parts)
