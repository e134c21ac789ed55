"""RenewDelegationToken (key 39): extend the lifetime of a token (KIP-48).

v1 as v0; v2 flexible (KIP-482).
"""

from kohort.protocol.message import field, request, response
from kohort.protocol.types import Bytes, Int16, Int32, Int64


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes
    renew_period_ms: Int64
    """New lifetime from now on."""


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The time at which the token ends.

    Error codes:
    - DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client is not authenticated.
    - DELEGATION_TOKEN_AUTH_DISABLED: delegation tokens are disabled.
    """

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)
