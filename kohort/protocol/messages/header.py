"""Request and response headers: what stands before the body in every frame.

The version of a header follows from that of the body: request header 2 and response header 1
before flexible bodies, else 1 and 0. Response header 0 stands before every ApiVersions response,
so that a client can read it without knowing what the broker speaks.
"""

from kohort.protocol.message import field, record
from kohort.protocol.types import Int16, Int32, String


@record(versions="1-2", flexible="2+")
class RequestHeader:
    """Stands before every request."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    """Chosen by the client, echoed in the response and not interpreted."""
    client_id: String | None = field(flexible=False)
    """Has a two-byte length in flexible versions too: the header must stay readable to a broker
    that knows an older version only."""


@record(versions="0-1", flexible="1+")
class ResponseHeader:
    """Stands before every response."""

    correlation_id: Int32
