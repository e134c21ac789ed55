"""DescribeUserScramCredentials (key 50): users with SCRAM credentials (KIP-554)."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


@struct
class UserName:
    name: String


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None
    """The users; None or empty for all."""


@struct
class CredentialInfo:
    mechanism: Int8
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


@response(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """Credentials by user.

    Error codes, at the top and per user:
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not see users.

    Per user:
    - RESOURCE_NOT_FOUND: it has no credentials.
    - DUPLICATE_RESOURCE: it is named twice.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]
