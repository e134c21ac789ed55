"""Lists and changes SCRAM users (KIP-554)."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from kohort.protocol.scram import HASHES, salted_password

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""SCRAM mechanisms by name, with their numbers in the protocol."""
ITERATIONS: Final = 8_192
"""Default for new passwords; Kafka's tools use 4,096."""

_SALT_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_LENGTH: Final = 26
"""Kafka's salt format; also used for unknown users, so that they cannot be enumerated."""


class User(NamedTuple):
    name: str
    iterations: dict[str, int]
    """Iterations by mechanism, in the order of `MECHANISMS`."""


class Password(NamedTuple):
    """A salted password, as it is sent to a broker."""

    mechanism: str
    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return f"Password({self.mechanism})"


def hashed(password: str, mechanisms: Iterable[str], iterations: int) -> list[Password]:
    passwords = []
    for mechanism in mechanisms:
        characters = (_SALT_CHARACTERS[byte % 36] for byte in os.urandom(_SALT_LENGTH))
        salt = "".join(characters).encode()
        salted = salted_password(HASHES[mechanism], password.encode(), salt, iterations)
        passwords.append(Password(mechanism, iterations, salt, salted))
    return passwords


def list_users(cluster: Cluster, names: Sequence[str] = ()) -> list[User]:
    """All users, or the existing ones of `names`. Raises RefusedError, DisconnectedError."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer: DescribeUserScramCredentialsResponse = cluster.ask(cluster.controller(), request)
    if answer.error_code:
        raise RefusedError(answer.error_code, "the users cannot be listed")
    mechanisms = {number: name for name, number in MECHANISMS.items()}
    users = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise _refused(result)
        # Kafka returns them in any order.
        infos = sorted((info.mechanism, info.iterations) for info in result.credential_infos)
        users.append(User(result.user, {mechanisms[number]: count for number, count in infos}))
    return sorted(users)


def set_password(cluster: Cluster, name: str, passwords: Iterable[Password]) -> None:
    """Add or replace a user's credentials, raising as `list_users`.

    Each has its own request, because Kafka rejects requests that name a user twice.
    """
    for password in passwords:
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=MECHANISMS[password.mechanism],
            iterations=password.iterations,
            salt=password.salt,
            salted_password=password.salted,
        )
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))


def remove_user(cluster: Cluster, user: User) -> None:
    """Remove all credentials of a user. Raises as `list_users`."""
    for mechanism in user.iterations:
        deletion = ScramCredentialDeletion(name=user.name, mechanism=MECHANISMS[mechanism])
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    answer: AlterUserScramCredentialsResponse = cluster.ask(cluster.controller(), request)
    for result in answer.results:
        if result.error_code:
            raise _refused(result)


def _refused(
    result: AlterUserScramCredentialsResult | DescribeUserScramCredentialsResult,
) -> RefusedError:
    return RefusedError(result.error_code, f"the user {result.user!r}", result.error_message)
