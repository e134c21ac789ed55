"""DescribeUserScramCredentials (key 50): the users with SCRAM credentials (KIP-554).

v0. Shows mechanisms and iterations, never a salt or a key.
"""

from collections import Counter
from typing import Final

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.dispatch.access import TEXTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.security.users import Users
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

NO_MESSAGE: Final = ""
"""The error message of a success, as in Kafka; other APIs return null."""


@handles(DescribeUserScramCredentialsRequest, versions="0")
def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Describe each user; all users if none is named."""
    users = ctx.broker.users
    assert users is not None
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _denied(request)
    if request.users:
        times = Counter(user.name for user in request.users)
    else:
        times = Counter(users.names())
    results = []
    for name, count in times.items():
        results.append(_described(users, name) if count == 1 else _twice(name))
        yield
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=NO_MESSAGE, results=results
    )


def _denied(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """Refuse at the top level and for each user, without repeating their names."""
    code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ResourceType.CLUSTER]
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=text,
        results=[_failed("", code, text) for _ in request.users or ()],
    )


def _described(users: Users, name: str) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=number, iterations=credential.iterations)
        for number, credential in users.credentials_of(name)
    ]
    if infos:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.NONE, error_message=NO_MESSAGE, credential_infos=infos
        )
    return _failed(
        name,
        ErrorCode.RESOURCE_NOT_FOUND,
        f"Attempt to describe a user credential that does not exist: {name}",
    )


def _twice(name: str) -> DescribeUserScramCredentialsResult:
    return _failed(
        name,
        ErrorCode.DUPLICATE_RESOURCE,
        f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
    )


def _failed(name: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=text, credential_infos=[]
    )
