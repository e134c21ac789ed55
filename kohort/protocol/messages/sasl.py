"""SaslHandshake (key 17): choose a mechanism; SaslAuthenticate (36): exchange tokens (KIP-152).

SaslHandshake v0 is followed by bare tokens without headers, v1 by SaslAuthenticate requests. A
flexible version of SaslHandshake will never exist, because old clients would misread it.
SaslAuthenticate: v1 lifetime of the session (KIP-368); v2 flexible.
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Bytes, Int16, Int64, String


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: String
    """Name of the mechanism, for example PLAIN or SCRAM-SHA-256."""


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """Whether the mechanism is enabled, and the list of enabled mechanisms.

    Error codes:
    - UNSUPPORTED_SASL_MECHANISM: not enabled on this listener.
    - ILLEGAL_SASL_STATE: authentication is over, or the listener has none.
    """

    error_code: Int16
    mechanisms: list[String]


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's token, or the error that ends the authentication.

    Error codes:
    - SASL_AUTHENTICATION_FAILED: the credentials are wrong; the connection is closed next.
    - ILLEGAL_SASL_STATE: not preceded by a handshake, or authentication is over.
    """

    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)
    """The client must authenticate again within this time; 0: never."""
