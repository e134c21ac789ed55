"""SCRAM's text and arithmetic (RFC 5802; with SHA-256 RFC 7677), which both sides share.

As in Kafka's own clients and brokers names and passwords are taken as they are, in UTF-8, without
the normalisation (SASLprep) that the RFC asks for; and there is no channel binding.
"""

import hashlib
import hmac
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""What hashlib calls the hash of a mechanism."""

ITERATIONS_MIN: Final = 4_096
"""RFC 7677, and Kafka's own lower bound: with fewer a password could be found by trying."""
ITERATIONS_MAX: Final = 16_384
"""Kafka's upper bound for what is stored."""

NO_CHANNEL_BINDING: Final = "n,,"
BINDING: Final = "biws"
"""The same in base64."""


class Keys(NamedTuple):
    """What a broker keeps of a password: enough to check it, too little to say it."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys()"


def salted_password(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The slow part: one password, hashed again and again."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    """What a client proves that it has."""
    return hmac.digest(salted, b"Client Key", hash_name)


def keys_of(hash_name: str, salted: bytes) -> Keys:
    """What follows from a salted password."""
    stored = hashlib.new(hash_name, client_key(hash_name, salted)).digest()
    return Keys(stored, hmac.digest(salted, b"Server Key", hash_name))


def signature(hash_name: str, key: bytes, said: bytes) -> bytes:
    """A key's signature of all that was said."""
    return hmac.digest(key, said, hash_name)


def xor(left: bytes, right: bytes) -> bytes:
    """Two of the same length, bit by bit."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped(name: str) -> str:
    """A name in which the two characters that have a meaning of their own are replaced."""
    return name.replace("=", "=3D").replace(",", "=2C")
