"""Request and response headers, which precede the body in every frame.

The version of a header follows from that of the body: request header 2 and response header 1
before flexible bodies, else 1 and 0. Response header 0 precedes every ApiVersions response, so that
a client can read it without knowing the broker's versions.
"""

from kohort.protocol.message import field, record
from kohort.protocol.types import Int16, Int32, String


@record(versions="1-2", flexible="2+")
class RequestHeader:
    """Precedes every request."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    """Chosen by the client, echoed in the response, never interpreted."""
    client_id: String | None = field(flexible=False)
    """Has a two-byte length in flexible versions too: a broker that knows only an older version
    must be able to read the header."""


@record(versions="0-1", flexible="1+")
class ResponseHeader:
    """Precedes every response."""

    correlation_id: Int32
