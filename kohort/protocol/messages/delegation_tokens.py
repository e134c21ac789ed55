"""Delegation tokens (KIP-48), which replace a user's credentials.

CreateDelegationToken (key 38), RenewDelegationToken (39), ExpireDelegationToken (40) and
DescribeDelegationToken (41): v2 flexible; v3 tokens for another owner (KIP-373).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bytes, Int16, Int32, Int64, String


@struct
class TokenPrincipal:
    principal_type: String
    principal_name: String


@request(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """The owner, the renewers and the lifetime of the new token."""

    owner_principal_type: String | None = field(default="", since=3)
    """The owner; None or empty for the requesting principal."""
    owner_principal_name: String | None = field(default="", since=3)
    renewers: list[TokenPrincipal]
    max_lifetime_ms: Int64
    """-1 for the broker's maximum."""


@response(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token.

    Error codes:
    - DELEGATION_TOKEN_AUTHORIZATION_FAILED: the principal may not create tokens for that owner.
    - INVALID_PRINCIPAL_TYPE: a renewer is not a user.
    """

    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(default="", since=3)
    token_requester_principal_name: String = field(default="", since=3)
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32 = field(default=0)


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes
    renew_period_ms: Int64
    """The new lifetime, counted from now."""


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The time at which the token expires."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


@request(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64
    """The remaining lifetime; if negative, the token expires at once."""


@response(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The time at which the token expires."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


@request(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[TokenPrincipal] | None
    """The owners; None for all tokens."""


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
    renewers: list[TokenPrincipal]


@response(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)
