"""CreateDelegationToken (key 38): create a secret that replaces a user's credentials (KIP-48).

v1 as v0; v2 flexible (KIP-482); v3 for another owner (KIP-373).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers:
    principal_type: String
    principal_name: String


@request(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """The owner, the renewers and the lifetime of the new token."""

    owner_principal_type: String | None = field(default="", since=3)
    """The owner; None or empty for the requesting principal."""
    owner_principal_name: String | None = field(default="", since=3)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64
    """-1 for the broker's maximum."""


@response(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token.

    Error codes:
    - DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client is not authenticated.
    - DELEGATION_TOKEN_AUTHORIZATION_FAILED: the principal may not create tokens for that owner.
    - INVALID_PRINCIPAL_TYPE: a renewer is not a user.
    - DELEGATION_TOKEN_AUTH_DISABLED: delegation tokens are disabled.
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
