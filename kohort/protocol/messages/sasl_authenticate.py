"""SaslAuthenticate (key 36): v1 lifetime of the session (KIP-368); v2 flexible. KIP-152."""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Bytes, Int16, Int64, String


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's token, or the end of the attempt.

    Error codes:
    - SASL_AUTHENTICATION_FAILED: the credentials are wrong; the connection is closed next.
    - ILLEGAL_SASL_STATE: not preceded by a handshake, or authentication is over.
    """

    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)
    """The client must authenticate again within this time; 0 is never."""
