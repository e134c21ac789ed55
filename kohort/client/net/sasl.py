"""SASL mechanisms, without I/O: the broker's tokens in, the client's tokens out.

PLAIN (RFC 4616), SCRAM (RFC 5802; with SHA-256 RFC 7677), without channel binding, which Kafka
does not support, and OAUTHBEARER (RFC 7628). As in Kafka's own clients and brokers, names and
passwords are used in UTF-8 without the normalisation (SASLprep) that the RFC requires: the
credentials stored by the broker were created without it, too.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final, Protocol

from kohort.client.net.oauth import OAuthToken
from kohort.protocol import scram

OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)

ITERATIONS_MAX: Final = 1 << 17
"""Maximum number of SCRAM iterations that a client accepts: they take about 0.1 s. Kafka itself
allows 16,384."""

TOKEN_BYTES_MAX: Final = 16 * 1024
"""Maximum size of a broker's SCRAM message; real ones have one or two hundred bytes."""


class SaslError(Exception):
    """Authentication cannot continue; the message never contains the password."""


class Mechanism(Protocol):
    def first(self) -> bytes:
        """Return the first token."""

    def answer(self, token: bytes) -> bytes | None:
        """Return the response to the broker's token; None if authentication is complete.

        Raises:
            SaslError: the broker fails to prove its identity, or violates the protocol.
        """


def mechanism(name: str, user: str, password: str, nonce: str) -> Mechanism:
    """Create a mechanism that uses a password.

    Args:
        nonce: printable ASCII without commas, never used before; only SCRAM sends it.
    """
    if name == "PLAIN":
        return Plain(user, password)
    return Scram(scram.HASHES[name], user, password, nonce)


class Plain:
    """PLAIN: sends the password itself; for connections with TLS."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, token: bytes) -> bytes | None:
        del token  # Kafka's is always empty.
        return None


class OAuthBearer:
    """OAUTHBEARER: sends a token of an issuer that the broker trusts."""

    def __init__(self, token: OAuthToken) -> None:
        parts = [f"auth=Bearer {token.value}"]
        parts += [f"{name}={value}" for name, value in token.extensions.items()]
        self._token = ("n,," + "".join(f"\1{part}" for part in parts) + "\1\1").encode()
        self._refusal: str | None = None

    def first(self) -> bytes:
        return self._token

    def answer(self, token: bytes) -> bytes | None:
        """Return None if the token was accepted. If not, `token` is the broker's reason, as
        JSON: return a byte 1, which the broker answers with the failure (RFC 7628).
        """
        if self._refusal is not None:
            raise SaslError(f"the broker rejected the token: {self._refusal}")
        if not token:
            return None
        self._refusal = printable(token.decode(errors="replace"))
        return b"\1"


class Scram:
    """SCRAM: both sides prove that they know the password without sending it."""

    def __init__(self, hash_name: str, user: str, password: str, nonce: str) -> None:
        """`hash_name`: the name of the hash function in hashlib."""
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce
        self._first_bare = f"n={scram.escaped(user)},r={nonce}"
        self._server_signature: bytes | None = None
        """The signature expected from the broker at the end; None before the proof is sent."""

    def first(self) -> bytes:
        return (scram.NO_CHANNEL_BINDING + self._first_bare).encode()

    def answer(self, token: bytes) -> bytes | None:
        if len(token) > TOKEN_BYTES_MAX:
            raise SaslError(f"the broker's token has {len(token)} bytes")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslError("the broker's token is not text") from None
        if self._server_signature is None:
            return self._prove(text)
        self._verify(text, self._server_signature)
        return None

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = self._parsed(server_first)
        name = self._hash_name
        salted = scram.salted_password(name, self._password, salt, iterations)
        keys = scram.keys_of(name, salted)
        without_proof = f"c={scram.BINDING},r={nonce}"
        auth_message = f"{self._first_bare},{server_first},{without_proof}".encode()
        signature = scram.signature(name, keys.stored_key, auth_message)
        proof = scram.xor(scram.client_key(name, salted), signature)
        self._server_signature = scram.signature(name, keys.server_key, auth_message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _parsed(self, server_first: str) -> tuple[str, bytes, int]:
        """Return the combined nonce, the salt, and the iteration count."""
        parts = server_first.split(",")
        # Optional extensions may follow. A mandatory one would come first (m=).
        if len(parts) < 3 or [part[:2] for part in parts[:3]] != ["r=", "s=", "i="]:
            raise SaslError("the broker's first token is not a SCRAM message")
        nonce, iterations = parts[0][2:], parts[2][2:]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the broker's nonce does not continue ours")
        salt = _decoded(parts[1][2:])
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 10):
            raise SaslError("the broker's iteration count is not a number")
        if not scram.ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise SaslError(
                f"the broker requires {int(iterations)} iterations; {scram.ITERATIONS_MIN} to"
                f" {ITERATIONS_MAX} are accepted"
            )
        return nonce, salt, int(iterations)

    def _verify(self, server_final: str, expected: bytes) -> None:
        first = server_final.split(",", 1)[0]
        if first.startswith("e="):
            raise SaslError(f"the broker answers {first[2:][:100]!r}")
        if not first.startswith("v="):
            raise SaslError("the broker's last token is not a SCRAM message")
        if not hmac.compare_digest(_decoded(first[2:]), expected):
            raise SaslError(
                "the broker did not prove that it knows the password; it may be an impostor"
            )


def printable(text: str) -> str:
    """Shorten a peer's text and remove control characters, for terminals and logs."""
    return "".join(char if char.isprintable() else "?" for char in text[:300])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is a subclass.
        raise SaslError("the broker's token has invalid base64") from None
