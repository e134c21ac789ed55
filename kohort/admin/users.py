"""What can be asked and changed about SCRAM users over Kafka's own protocol (KIP-554)."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from kohort.protocol.scram import HASHES, salted_password

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""SCRAM mechanisms by name, with their numbers in the protocol."""
ITERATIONS: Final = 8_192
"""Iterations for passwords that are set here; Kafka's tools use 4,096 by default."""

_SALT_CHARACTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_LENGTH: Final = 26
"""The form that Kafka's tools give a salt; one for a user that there is not looks the same."""


class User(NamedTuple):
    """A user, without secrets."""

    name: str
    iterations: dict[str, int]
    """Iterations by mechanism, in the order of `MECHANISMS`."""


class Password(NamedTuple):
    """A password as a broker is told of it."""

    mechanism: str
    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return f"Password({self.mechanism})"


def hashed(password: str, mechanisms: Iterable[str], iterations: int) -> list[Password]:
    """One for each mechanism, with a new salt."""
    found = []
    for mechanism in mechanisms:
        characters = (_SALT_CHARACTERS[byte % 36] for byte in os.urandom(_SALT_LENGTH))
        salt = "".join(characters).encode()
        salted = salted_password(HASHES[mechanism], password.encode(), salt, iterations)
        found.append(Password(mechanism, iterations, salt, salted))
    return found


def list_users(cluster: Cluster, names: Sequence[str] = ()) -> list[User]:
    """All users, or those of `names` that there are. Raises RefusedError, DisconnectedError."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer: DescribeUserScramCredentialsResponse = cluster.ask(cluster.controller(), request)
    if answer.error_code:
        raise RefusedError(answer.error_code, "the users cannot be listed")
    of_number = {number: name for name, number in MECHANISMS.items()}
    found = []
    for one in answer.results:
        if one.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if one.error_code:
            raise _refused(one)
        # Kafka tells them in any order.
        infos = sorted((info.mechanism, info.iterations) for info in one.credential_infos)
        found.append(User(one.user, {of_number[number]: count for number, count in infos}))
    return sorted(found)


def set_password(cluster: Cluster, name: str, passwords: Iterable[Password]) -> None:
    """Give a user these credentials in place of what it has, each by a request of its own: Kafka
    refuses a request that names a user twice. Raises as `list_users`.
    """
    for one in passwords:
        wanted = ScramCredentialUpsertion(
            name=name,
            mechanism=MECHANISMS[one.mechanism],
            iterations=one.iterations,
            salt=one.salt,
            salted_password=one.salted,
        )
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]))


def remove_user(cluster: Cluster, user: User) -> None:
    """Take all credentials of a user away, each as above. Raises as `list_users`."""
    for mechanism in user.iterations:
        wanted = ScramCredentialDeletion(name=user.name, mechanism=MECHANISMS[mechanism])
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[wanted], upsertions=[]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    answer: AlterUserScramCredentialsResponse = cluster.ask(cluster.controller(), request)
    for one in answer.results:
        if one.error_code:
            raise _refused(one)


def _refused(
    result: AlterUserScramCredentialsResult | DescribeUserScramCredentialsResult,
) -> RefusedError:
    return RefusedError(result.error_code, f"the user {result.user!r}", result.error_message)
