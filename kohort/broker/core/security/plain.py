"""PLAIN (RFC 4616): name and password in plain text."""

from typing import Final, NamedTuple

from kohort.broker.core.security.exchange import SaslFailure

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
    """The login in a token. Raises SaslFailure."""
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
