"""SCRAM's text and arithmetic (RFC 5802; with SHA-256, RFC 7677), for clients and broker.

As in Kafka's own clients and brokers, names and passwords are used unchanged, in UTF-8, without the
normalisation (SASLprep) that the RFC requires; and there is no channel binding.

hashlib is imported with the first hash: it takes 0.7 MiB, and every broker imports this module.
"""

from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hashes of the mechanisms, as hashlib names them."""

ITERATIONS_MIN: Final = 4_096
"""The lower bound of RFC 7677 and Kafka: with fewer, a password could be found by brute force."""
ITERATIONS_MAX: Final = 16_384
"""Kafka's upper bound for stored credentials."""
NAME_BYTES_MAX: Final = 255
SALT_BYTES_MAX: Final = 1_024
"""Names and salts of stored credentials are limited, unlike in Kafka: the broker sends the salt to
unauthenticated clients. As in Kafka, a salt may be short or empty."""

NO_CHANNEL_BINDING: Final = "n,,"
BINDING: Final = "biws"
"""NO_CHANNEL_BINDING in base64."""


class Keys(NamedTuple):
    """The keys that a broker stores for a password: enough to verify clients, not to act as one."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys()"


def salted_password(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Compute the salted password, by hashing the password `iterations` times, which is slow."""
    import hashlib  # noqa: PLC0415

    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """Compute the ClientKey of RFC 5802, whose possession a client proves."""
    return signature(hash_name, salted, b"Client Key")


def keys_of(hash_name: str, salted: bytes) -> Keys:
    """Derive the stored keys from a salted password."""
    stored = hashed(hash_name, client_key(hash_name, salted))
    return Keys(stored, signature(hash_name, salted, b"Server Key"))


def signature(hash_name: str, key: bytes, said: bytes) -> bytes:
    """Compute a key's signature (HMAC) of the exchanged messages."""
    import hmac  # noqa: PLC0415

    return hmac.digest(key, said, hash_name)


def hashed(hash_name: str, data: bytes) -> bytes:
    """Compute the hash of `data`."""
    import hashlib  # noqa: PLC0415

    return hashlib.new(hash_name, data).digest()


def xor(left: bytes, right: bytes) -> bytes:
    """Return the exclusive or of two byte strings of the same length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped(name: str) -> str:
    """Return a name with the two special characters ("," and "=") escaped."""
    return name.replace("=", "=3D").replace(",", "=2C")
