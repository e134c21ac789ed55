"""Lists and changes SCRAM users (KIP-554).

Disables and enables users of a Kohort cluster through two dynamic broker configs, because Kafka has
no request for it. The configs are lists of user names, percent-encoded, because names may contain
commas. A value of the broker overrides the cluster-wide default, so changes have to be made to the
value in force.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from kohort.admin.cluster import Cluster, RefusedError, check
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig
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
"""Salts have Kafka's format. Kohort brokers also send such a salt to unknown users, so that it does
not show whether the user exists."""


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
    """All users, or the existing ones of `names`."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer: DescribeUserScramCredentialsResponse = cluster.ask(cluster.controller(), request)
    check(answer.error_code, "the users cannot be listed")
    mechanisms = {number: name for name, number in MECHANISMS.items()}
    users = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            raise _refused(result)
        # Kafka returns the credentials in any order.
        infos = sorted((info.mechanism, info.iterations) for info in result.credential_infos)
        users.append(User(result.user, {mechanisms[number]: count for number, count in infos}))
    return sorted(users)


def set_password(cluster: Cluster, name: str, passwords: Iterable[Password]) -> None:
    """Add or replace a user's credentials.

    Sends a request per mechanism, because Kafka rejects requests that name a user twice.
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


DISABLED: Final = "kohort.users.disabled"
"""Config with the users that cannot authenticate."""
DISCONNECTED: Final = "kohort.users.disconnected"
"""Config with the disabled users whose open connections are closed too."""


class Names(NamedTuple):
    """The user names in the effective value of a config (`DISABLED` or `DISCONNECTED`)."""

    items: tuple[str, ...]
    """The names as encoded in the config; see `item_of`."""
    broker: str = ""
    """Id of the broker that has the value, empty for the cluster-wide default."""

    def items_of(self, user: str) -> list[str]:
        """Return the items that decode to this name, which may be encoded in several ways."""
        return [item for item in self.items if unquote(item) == user]


def item_of(user: str) -> str:
    return quote(user, safe="@")


def user_of(item: str) -> str:
    return unquote(item)


def disabled_users(cluster: Cluster) -> frozenset[str]:
    """All disabled users; empty if the cluster cannot disable users."""
    listed = _listed(cluster).get(DISABLED)
    return frozenset(map(user_of, listed.items)) if listed is not None else frozenset()


def disable_user(cluster: Cluster, user: str, *, disconnects: bool) -> None:
    """Disable a user; `disconnects` also closes its connections."""
    listed = _listed(cluster)
    if DISABLED not in listed:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"the user {user!r}", f"only Kohort has {DISABLED}"
        )
    wanted = (DISABLED, DISCONNECTED) if disconnects else (DISABLED,)
    changed = {name: (listed[name], item_of(user)) for name in wanted}
    _alter_names(cluster, user, Operation.APPEND, changed)


def enable_user(cluster: Cluster, user: str) -> bool:
    """Enable a user; returns whether it was disabled."""
    listed = _listed(cluster)
    changed = {
        name: (names, ",".join(names.items_of(user)))
        for name, names in listed.items()
        if names.items_of(user)
    }
    if changed:
        _alter_names(cluster, user, Operation.SUBTRACT, changed)
    return DISABLED in changed


def _listed(cluster: Cluster) -> dict[str, Names]:
    """Return the values of DISABLED and DISCONNECTED, by name; {} if the cluster lacks both."""
    answer = cluster.metadata([])
    # A broker describes only its own configs, and the controller can change between requests.
    broker, connection = str(answer.controller_id), cluster.broker(answer, answer.controller_id)
    configs = described(
        cluster,
        connection or cluster.controller(),
        Resource(Kind.BROKER, broker),
        [DISABLED, DISCONNECTED],
        "the disabled users",
    )
    return {
        config.name: Names(
            tuple(item for item in (config.value or "").split(",") if item),
            broker if config.config_source == Source.BROKER else "",
        )
        for config in configs
    }


def _alter_names(
    cluster: Cluster, user: str, operation: Operation, changed: dict[str, tuple[Names, str]]
) -> None:
    """Append items to configs, or subtract them; `changed`: (present value, items) by config."""
    changes: dict[Resource, list[AlterableConfig]] = {}
    for name, (names, items) in changed.items():
        resource = Resource(Kind.BROKER, names.broker)
        changes.setdefault(resource, []).append(change(name, operation, items))
    alter(cluster, changes, f"the user {user!r}")
