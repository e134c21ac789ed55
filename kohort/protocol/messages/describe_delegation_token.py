"""DescribeDelegationToken (key 41): the tokens of some owners, or all (KIP-48).

v1 as v0; v2 flexible (KIP-482); v3 the requester of a token (KIP-373).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bytes, Int16, Int32, Int64, String


@struct
class DescribeDelegationTokenOwner:
    principal_type: String
    principal_name: String


@request(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None
    """The owners; None for all tokens."""


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String
    principal_name: String


@struct
class DescribedDelegationToken:
    """A delegation token: its owner, requester, times, id and HMAC."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(default="", since=3)
    token_requester_principal_name: String = field(default="", since=3)
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


@response(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens.

    Error codes:
    - DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client is not authenticated.
    - DELEGATION_TOKEN_AUTH_DISABLED: delegation tokens are disabled.
    """

    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)
