"""SaslHandshake (key 17): choose how to authenticate.

v0 is followed by bare tokens without headers, v1 by SaslAuthenticate requests (KIP-152). It has no
flexible version and will not get one, because old clients would misread it.
"""

from kohort.protocol.message import request, response
from kohort.protocol.types import Int16, String


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: String
    """Name of the mechanism, for example PLAIN or SCRAM-SHA-256."""


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """Whether the mechanism is enabled, and all that are.

    Error codes:
    - UNSUPPORTED_SASL_MECHANISM: not enabled on this listener.
    - ILLEGAL_SASL_STATE: authentication is over, or the listener has none.
    """

    error_code: Int16
    mechanisms: list[String]
