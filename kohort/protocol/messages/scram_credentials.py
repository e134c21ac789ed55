"""SCRAM credentials of users (KIP-554): DescribeUserScramCredentials (key 50) and
AlterUserScramCredentials (51).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bytes, Int8, Int16, Int32, String


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

    Error codes, per user:
    - RESOURCE_NOT_FOUND: it has no credentials.
    - DUPLICATE_RESOURCE: it is named twice.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]


@struct
class ScramCredentialDeletion:
    name: String
    mechanism: Int8
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


@struct
class ScramCredentialUpsertion:
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes
    """Hashed by the client, so that the password itself is not sent."""


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    user: String
    error_code: Int16
    error_message: String | None


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result per user.

    Error codes, per user:
    - DUPLICATE_RESOURCE: one credential is named twice.
    - UNACCEPTABLE_CREDENTIAL: an empty name, a salt or a number of iterations out of bounds.
    - UNSUPPORTED_SASL_MECHANISM: no such mechanism.
    - RESOURCE_NOT_FOUND: there is no such credential to delete.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]
