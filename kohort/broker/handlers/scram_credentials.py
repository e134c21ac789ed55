"""AlterUserScramCredentials (key 51): add and remove SCRAM credentials of users (KIP-554).

v0. The client sends a salted hash of the password; the broker stores keys derived from the hash,
which do not reveal it. Users fail individually. As in Kafka, a salt may be short or empty, and a
salted password may have any length above 0. Unlike Kafka, the broker limits names, salts and the
number of users.

DescribeUserScramCredentials (key 50): the users with SCRAM credentials (KIP-554).

v0. Shows mechanisms and iterations, never a salt or a key.
"""

import asyncio
from collections import Counter
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.sasl import Credential
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.dispatch.access import denied
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import OnError, elements
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.security.users import MECHANISMS, USERS_MAX, Change, CredentialKey, Users
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.protocol.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NAME_BYTES_MAX,
    SALT_BYTES_MAX,
    keys_of,
)

Wanted = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(
    AlterUserScramCredentialsRequest,
    versions="0",
    on_error=OnError(elements("results", "upsertions", {"user": "name"})),
)
async def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Alter each user; respond when the changes are on disk."""
    if not ctx.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _denied(request)
    # A change is completed even if its client disconnects.
    return await asyncio.shield(asyncio.ensure_future(_alter(ctx, request)))


def _denied(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    error = denied(ResourceType.CLUSTER)
    names = dict.fromkeys(change.name for change in _all_wanted(request))
    return AlterUserScramCredentialsResponse(results=[_result(name, error) for name in names])


def _result(name: str, error: KafkaError | None = None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=error.code if error else ErrorCode.NONE,
        error_message=error.message if error else None,
    )


async def _alter(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    users = ctx.broker.users
    assert users is not None
    async with ctx.broker.topics.changes.under_way:
        checking = _check_alterations(users, request)
        results, changes = await run(checking, Slice(ctx.broker.clock))
        if changes:
            await ctx.broker.topics.disk.run(users.store_changes, changes)
            time_slice = Slice(ctx.broker.clock)
            for change in changes:
                users.apply([change])
                await time_slice.pause()
    return AlterUserScramCredentialsResponse(results=results)


def _check_alterations(
    users: Users, request: AlterUserScramCredentialsRequest
) -> Steps[tuple[list[AlterUserScramCredentialsResult], list[Change]]]:
    """Return the answer for each user, and the changes to store."""
    wanted: dict[str, list[Wanted]] = {}
    for change in _all_wanted(request):
        wanted.setdefault(change.name, []).append(change)
    results, changes = [], list[Change]()
    for name, of_user in wanted.items():
        try:
            changes.append(_change(users, of_user))
            results.append(_result(name))
        except KafkaError as error:
            results.append(_result(name, error))
        yield
    return results, changes


def _all_wanted(request: AlterUserScramCredentialsRequest) -> list[Wanted]:
    return [*request.deletions, *request.upsertions]


def _change(users: Users, wanted: list[Wanted]) -> Change:
    """Return the change of one user; raises KafkaError.

    A request may change a user once, for one mechanism. As in Kafka, an error in the first change
    takes precedence over the error for a second one.
    """
    first = wanted[0]
    if not first.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(first.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    key = CredentialKey(first.name, mechanism)
    new = None
    if isinstance(first, ScramCredentialUpsertion):
        new = _credential(users, first, mechanism)
    elif not users.is_stored(key):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, _nothing_to_delete(users, key))
    if len(wanted) > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    return key, new


def _nothing_to_delete(users: Users, key: CredentialKey) -> str:
    if users.get(*key) is not None:
        return "The user is one of kohort.users.file, which the broker does not write"
    return "Attempt to delete a user credential that does not exist"


def _credential(users: Users, wanted: ScramCredentialUpsertion, mechanism: str) -> Credential:
    why = None
    if wanted.iterations < ITERATIONS_MIN:
        why = "Too few iterations"
    elif wanted.iterations > ITERATIONS_MAX:
        why = "Too many iterations"
    elif len(wanted.name.encode()) > NAME_BYTES_MAX:
        why = f"The name has more than {NAME_BYTES_MAX} bytes"
    elif len(wanted.salt) > SALT_BYTES_MAX:
        why = f"The salt has more than {SALT_BYTES_MAX} bytes"
    elif not wanted.salted_password:
        # Kafka reports a server error, because Java's HMAC rejects an empty key.
        why = "The salted password is empty"
    elif len(users) >= USERS_MAX and not any(users.credentials_of(wanted.name)):
        why = f"There are {USERS_MAX} users"
    if why is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
    keys = keys_of(HASHES[mechanism], bytes(wanted.salted_password))
    return Credential(bytes(wanted.salt), keys, wanted.iterations)


NO_MESSAGE: Final = ""
"""The `error_message` if there is no error: empty, as in Kafka, whose other APIs return null."""


@handles(DescribeUserScramCredentialsRequest, versions="0")
def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Describe each user; all users if none is named."""
    users = ctx.broker.users
    assert users is not None
    if not ctx.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        error = denied(ResourceType.CLUSTER)
        return DescribeUserScramCredentialsResponse(
            error_code=error.code,
            error_message=error.message,
            # One error for each requested user, with an empty name.
            results=[_failed("", error) for _ in request.users or ()],
        )
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


def _described(users: Users, name: str) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=number, iterations=credential.iterations)
        for number, credential in users.credentials_of(name)
    ]
    if infos:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.NONE, error_message=NO_MESSAGE, credential_infos=infos
        )
    text = f"Attempt to describe a user credential that does not exist: {name}"
    return _failed(name, KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text))


def _twice(name: str) -> DescribeUserScramCredentialsResult:
    text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return _failed(name, KafkaError(ErrorCode.DUPLICATE_RESOURCE, text))


def _failed(name: str, error: KafkaError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=error.code, error_message=error.message, credential_infos=[]
    )
