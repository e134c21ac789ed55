"""The broker's side of SASL mechanisms, without sockets, randomness or time: PLAIN (RFC 4616) and
SCRAM (RFC 5802).

With SCRAM, an unknown user is answered like any other, with a credential made up from its name, and
fails at the proof: a client cannot learn which names exist.
"""

import base64
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from kohort.protocol.scram import BINDING, HASHES, ITERATIONS_MIN, Keys, hashed, signature, xor


class Challenge(NamedTuple):
    """A token for the client, which must reply with another one."""

    token: bytes


class Done(NamedTuple):
    """Success: the client is authenticated."""

    token: bytes
    user: str
    lifetime_ms: int | None = None
    """How long the client's credential is valid; None for no limit."""


class SaslFailure(Exception):  # noqa: N818 - the client's failure, not an error of the broker.
    """Authentication failed. The text is for the broker's log; `client_message` is for the client,
    None for the mechanism's general message.
    """

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


WRONG: Final = "Authentication failed: Invalid username or password"
_PARTS: Final = 3


class PlainLogin(NamedTuple):
    """The name and password that a client sends, not yet checked."""

    authzid: str
    user: str
    password: bytes

    def __repr__(self) -> str:
        return f"PlainLogin({self.user!r})"

    def check_authzid(self) -> None:
        """Raise SaslFailure if the client asks to act as another user."""
        if self.authzid and self.authzid != self.user:
            raise SaslFailure(
                "the authorization id differs from the user name",
                "Authentication failed: Client requested an authorization id that is different"
                " from username",
            )


def read_plain(token: bytes) -> PlainLogin:
    """Parse the client's SASL/PLAIN message. Raises SaslFailure."""
    # No password contains invalid UTF-8; Java replaces such bytes.
    parts = token.split(b"\0")
    if len(parts) != _PARTS:
        raise SaslFailure(
            "the message does not have three parts",
            f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}",
        )
    authzid, user, password = parts
    if not user:
        raise SaslFailure("no user", "Authentication failed: username not specified")
    if not password:
        raise SaslFailure("no password", "Authentication failed: password not specified")
    return PlainLogin(authzid.decode("utf-8", "replace"), user.decode("utf-8", "replace"), password)


# Compiled at the first login: brokers without SASL import this module, too.
_FIRST: Final = (
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<name>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_FINAL: Final = (
    r"(?P<without_proof>c=(?P<binding>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^,\0]+)*?),p=(?P<proof>[^,]*)"
)
_ESCAPE: Final = r"=(2C|3D|)"
_SALT_CHARACTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_BYTES: Final = 26
_TO_TEXT: Final = bytes(_SALT_CHARACTERS[byte % len(_SALT_CHARACTERS)] for byte in range(256))


class VisibleProperties(NamedTuple):
    """The properties of a credential that an unauthenticated client sees, and by which it could
    distinguish a made-up credential from a stored one.
    """

    iterations: int = ITERATIONS_MIN
    salt_bytes: int = _SALT_BYTES
    is_text: bool = True
    """Whether the salt has only digits and lowercase letters, like salts from Kafka's tools."""


USUAL_PROPERTIES: Final = VisibleProperties()
"""The properties of made-up credentials as long as no credential is stored."""


class Credential(NamedTuple):
    """The stored credential of one user for one mechanism."""

    salt: bytes
    keys: Keys
    iterations: int
    is_made_up: bool = False
    """Whether no user has this credential, so that its proof is never right."""

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"

    @property
    def look(self) -> VisibleProperties:
        """The properties of this credential that a client without the password sees."""
        is_text = not self.salt.translate(None, _SALT_CHARACTERS)
        return VisibleProperties(self.iterations, len(self.salt), is_text)


class ScramExchange:
    """One authentication attempt."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], Credential],
        nonce: str,
        why_unknown: Callable[[str], str] = lambda _: "unknown user",
    ) -> None:
        """`find` returns the credential of a name, made up if there is none; `nonce` is printable
        ASCII without commas, and was never used before; `why_unknown` returns, for the log, why the
        credential of a name is made up.
        """
        self.user = ""
        """The name that the client claims; empty until it has sent one."""
        self._mechanism = mechanism
        self._hash_name = HASHES[mechanism]
        self._find = find
        self._why_unknown = why_unknown
        self._nonce = nonce
        self._credential: Credential | None = None
        self._said = ""

    def step(self, token: bytes) -> Challenge | Done:
        """Process the client's next message; return the reply. Raises SaslFailure."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslFailure("the message is not UTF-8") from None
        if self._credential is None:
            return self._first(text)
        return self._final(text, self._credential)

    def _first(self, text: str) -> Challenge:
        match = re.fullmatch(_FIRST, text, re.DOTALL)
        if match is None:
            raise SaslFailure("the first message is not a SCRAM message")
        self.user = _unescaped(match["name"])
        if ",tokenauth=true" in match["extensions"].lower():
            raise SaslFailure("delegation tokens are not supported")
        authzid = _unescaped(match["authzid"] or "") if match["authzid"] else ""
        if authzid and authzid != self.user:
            raise SaslFailure(
                "the authorization id differs from the user name",
                "Authentication failed: Client requested an authorization id that is different"
                " from username",
            )
        credential = self._credential = self._find(self.user)
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{match['bare']},{first}"
        return Challenge(first.encode())

    def _final(self, text: str, credential: Credential) -> Done:
        import hmac  # noqa: PLC0415 - see kohort.protocol.scram.

        match = re.fullmatch(_FINAL, text, re.DOTALL)
        if match is None:
            raise SaslFailure("the final message is not a SCRAM message")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except ValueError:
            raise SaslFailure("the proof is not base64") from None
        said = f"{self._said},c={match['binding']},r={match['nonce']}".encode()
        stored_key, server_key = credential.keys
        signed = signature(self._hash_name, stored_key, said)
        is_of_length = len(proof) == len(signed)
        key = xor(proof if is_of_length else signed, signed)
        is_proved = hmac.compare_digest(hashed(self._hash_name, key), stored_key)
        if match["binding"] != BINDING:
            raise SaslFailure("channel binding is not supported")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise SaslFailure("the nonce differs (librdkafka before 2.6.1 repeats its own)")
        if not is_proved or not is_of_length or credential.is_made_up:
            # Called also for users that exist, so that the time does not reveal which ones do.
            why_unknown = self._why_unknown(self.user)
            raise SaslFailure(why_unknown if credential.is_made_up else "wrong password")
        verifier = base64.b64encode(signature(self._hash_name, server_key, said)).decode()
        return Done(f"v={verifier}".encode(), self.user)


def made_up(
    mechanism: str, name: str, secret: bytes, visible: VisibleProperties = USUAL_PROPERTIES
) -> Credential:
    """Return a credential for an unknown user, so that clients cannot tell whether the user exists:
    always the same for a name, a `secret` and the `visible` properties.
    """
    import hashlib  # noqa: PLC0415 - see kohort.protocol.scram.

    seed = signature("sha512", secret, f"{mechanism}\0{name}".encode())
    size = visible.salt_bytes
    salt = seed[:size] if size <= len(seed) else hashlib.shake_256(seed).digest(size)
    if visible.is_text:
        salt = salt.translate(_TO_TEXT)
    keys = signature(HASHES[mechanism], secret, seed)
    return Credential(salt, Keys(keys, keys[::-1]), visible.iterations, is_made_up=True)


def _unescaped(name: str) -> str:
    plain = re.sub(_ESCAPE, lambda escape: {"2C": ",", "3D": "="}.get(escape[1], "\0"), name)
    if not plain or "\0" in plain:
        raise SaslFailure("the user name is empty or escaped incorrectly")
    return plain
