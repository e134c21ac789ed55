"""Explains why a store of keys or certificates is unusable, and the remedy; OpenSSL's errors do
not.
"""

import ssl
from typing import Final

from kohort.broker.config.listeners import CONVERSION

BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_BEGIN: Final = b"-----BEGIN "
_KEY: Final = b"PRIVATE KEY-----"
_OF_JAVA: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""First bytes of JKS and JCEKS stores."""
_DER: Final = b"\x30"
"""First byte of PKCS12 stores, and of keys and certificates in DER."""

_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


def key_store_problem(data: bytes, *, is_file: bool) -> str | None:
    """Return what is missing in a PEM key store; None if nothing."""
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
    """Return what is missing in a PEM trust store; None if nothing."""
    problem = _pem_problem(data, "truststore")
    if problem is None and BEGIN_CERTIFICATE.encode() not in data:
        return f"has no certificate in it, which begins with {BEGIN_CERTIFICATE}"
    return problem


def _pem_problem(data: bytes, kind: str) -> str | None:
    """Return why bytes are not PEM; None if they are."""
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
    """Whether the key does not belong to the certificate."""
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
