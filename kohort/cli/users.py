"""``kohort users``: users that authenticate with SCRAM or PLAIN, on a Kohort or Kafka cluster."""

import argparse
import getpass
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.users import (
    ITERATIONS,
    MECHANISMS,
    Password,
    User,
    disable_user,
    disabled_users,
    enable_user,
    hashed,
    list_users,
    remove_user,
    set_password,
)
from kohort.broker.core.security.sasl import Credential
from kohort.broker.security.users_file import credential_line
from kohort.cli.commands import Commands
from kohort.cli.errors import ExistsError, NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_result
from kohort.cli.output import table
from kohort.formats.text import shown
from kohort.protocol.errors import ErrorCode
from kohort.protocol.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, keys_of

if TYPE_CHECKING:
    from kohort.cli.stopped_broker import StoppedBroker

PASSWORD_BYTES_MAX: Final = 4096
_STATES: Final = {True: "disabled", False: "enabled", None: None}
"""Cell of the column STATE, by whether the user is disabled; None if not authorized to see it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such user")
    _add_store(commands.add("list", "all users, without their secrets", _list))

    command = commands.add("add", "add a user with a password", _add)
    command.add_argument("user", metavar="NAME")
    _add_password(command)
    _add_store(command)

    command = commands.add("password", "change a user's password", _password)
    command.add_argument("user", metavar="NAME")
    _add_password(command, default="all that the user has")
    _add_store(command)

    command = commands.add("hash", "print a user's lines for kohort.users.file", _hash)
    command.add_argument("user", metavar="NAME")
    _add_password(command)

    command = commands.add("disable", "reject users' logins until they are enabled", _disable)
    command.add_argument("users", metavar="NAME", nargs="+")
    command.add_argument(
        "--disconnect",
        action="store_true",
        help="also close the users' open connections, which otherwise stay",
    )
    _add_store(command)

    command = commands.add("enable", "accept logins of disabled users again", _enable)
    command.add_argument("users", metavar="NAME", nargs="+")
    _add_store(command)

    command = commands.add("remove", "remove users' credentials; open connections stay", _remove)
    command.add_argument("users", metavar="NAME", nargs="+")
    _add_store(command)


def _add_store(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="data directory of a stopped broker, instead of a running broker: to add the first"
        " user",
    )


def _add_password(parser: argparse.ArgumentParser, *, default: str = "both") -> None:
    parser.add_argument(
        "--password-fd",
        type=int,
        metavar="FD",
        help="read the password from this file descriptor (0 is standard input) instead of the"
        " terminal",
    )
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=[*MECHANISMS],
        help=f"the mechanism to set the password for; repeatable (default: {default})",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS,
        metavar="N",
        help=f"hash iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX} (%(default)s)",
    )


def _list(options: argparse.Namespace) -> None:
    with _store_of(options) as store:
        users, disabled = store.users(), store.disabled()
    # Users who authenticate by certificate have no password here, but may be disabled too.
    others = (disabled or frozenset()).difference(user.name for user in users)
    users = sorted([*users, *(User(name, {}) for name in others)])
    states = {user.name: None if disabled is None else user.name in disabled for user in users}
    data = [
        {"name": user.name, "iterations": user.iterations, "disabled": states[user.name]}
        for user in users
    ]
    rows = [
        [user.name, *map(user.iterations.get, MECHANISMS), _STATES[states[user.name]]]
        for user in users
    ]
    print_result(options, {"users": data}, table(["USER", *MECHANISMS, "STATE"], rows))


def _add(options: argparse.Namespace) -> None:
    is_new = options.data is not None and not _is_data_directory(options.data)
    with _store_of(options, creates=True) as store:
        if store.users([options.user]):
            raise ExistsError(
                f"the user {options.user!r} exists; `kohort users password` changes the password"
            )
        password = _read_password(options)
        mechanisms = options.mechanism or list(MECHANISMS)
        store.set_password(options.user, hashed(password, mechanisms, options.iterations))
    print(f"{shown(options.user)}: added for {', '.join(mechanisms)}")
    if is_new:
        print(f"{options.data} is new; set the broker's log.dirs to it, so that it has these users")


def _is_data_directory(directory: str) -> bool:
    # Imported only with --data, as in `_store_of`.
    from kohort.cli.stopped_broker import is_data_directory  # noqa: PLC0415

    return is_data_directory(directory)


def _password(options: argparse.Namespace) -> None:
    with _store_of(options) as store:
        users = store.users([options.user])
        if not users:
            raise _no_user(options.user)
        password = _read_password(options)
        # By default, change every mechanism of the user: no mechanism may keep the old password.
        mechanisms = sorted(set(options.mechanism or users[0].iterations))
        store.set_password(options.user, hashed(password, mechanisms, options.iterations))
    print(f"{shown(options.user)}: changed for {', '.join(mechanisms)}")


def _hash(options: argparse.Namespace) -> None:
    password = _read_password(options)
    mechanisms = list(dict.fromkeys(options.mechanism or MECHANISMS))
    for entry in hashed(password, mechanisms, options.iterations):
        try:
            print(credential_line(options.user, entry.mechanism, credential_of(entry)))
        except ValueError as error:
            raise UsageError(f"NAME: {error}") from None


def _disable(options: argparse.Namespace) -> None:
    with _store_of(options) as store:
        for name in options.users:
            if not store.users([name]):
                raise NotFoundError(
                    f"unknown user {name!r}; to disable a user of certificates or tokens, use the"
                    " setting kohort.users.disabled"
                )
            store.disable(name, disconnects=options.disconnect)
            also = ", disconnected" if options.disconnect else ""
            print(f"{shown(name)}: disabled{also}")


def _enable(options: argparse.Namespace) -> None:
    with _store_of(options) as store:
        for name in options.users:
            was_disabled = store.enable(name)
            # A removed user, or one that never had a password here, may still be disabled.
            if not was_disabled and not store.users([name]):
                raise _no_user(name)
            print(f"{shown(name)}: {'enabled' if was_disabled else 'was not disabled'}")


def _remove(options: argparse.Namespace) -> None:
    with _store_of(options) as store:
        for name in options.users:
            users = store.users([name])
            if not users:
                raise _no_user(name)
            store.remove(users[0])
            rest = "; still has the password in kohort.users.file" if store.users([name]) else ""
            print(f"{shown(name)}: removed{rest}")


def _no_user(name: str) -> NotFoundError:
    return NotFoundError(f"unknown user {name!r}; `kohort users list` shows all users")


def credential_of(password: Password) -> Credential:
    keys = keys_of(HASHES[password.mechanism], password.salted)
    return Credential(password.salt, keys, password.iterations)


def _read_password(options: argparse.Namespace) -> str:
    """The new password, from the terminal or a file descriptor. Raises UsageError."""
    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations is {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if options.password_fd is None:
        password = _from_terminal()
    else:
        password = _from_descriptor(options.password_fd)
    if not password or not {"\0", "\n", "\r"}.isdisjoint(password):
        raise UsageError("the password is empty, or contains a NUL or a line break")
    return password


def _from_terminal() -> str:
    try:
        with warnings.catch_warnings():
            # Raised if the password would be echoed.
            warnings.simplefilter("error", getpass.GetPassWarning)
            password = getpass.getpass("New password: ")
            repeated = getpass.getpass("Once more: ")
    except (getpass.GetPassWarning, EOFError):
        raise UsageError(
            "no terminal to read the password from; --password-fd 0 reads it from standard input"
        ) from None
    if repeated != password:
        raise UsageError("the passwords differ")
    return password


def _from_descriptor(descriptor: int) -> str:
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(PASSWORD_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--password-fd {descriptor} cannot be read: {error}") from None
    if len(data) > PASSWORD_BYTES_MAX:
        raise UsageError(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")
    return text.removesuffix("\n").removesuffix("\r")


@contextmanager
def _store_of(
    options: argparse.Namespace, *, creates: bool = False
) -> "Iterator[_RunningBroker | StoppedBroker]":
    """Open the users of the given broker or data directory. Raises UsageError, UnavailableError."""
    if options.data is None:
        with cluster_of(options) as cluster:
            yield _RunningBroker(cluster)
        return
    # Needs the broker's storage, which other commands do not pay for.
    from kohort.cli.stopped_broker import stopped_broker  # noqa: PLC0415

    with stopped_broker(options.data, creates=creates) as store:
        yield store


class _RunningBroker:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.users = partial(list_users, cluster)
        self.set_password = partial(set_password, cluster)
        self.remove = partial(remove_user, cluster)
        self.disable = partial(disable_user, cluster)
        self.enable = partial(enable_user, cluster)

    def disabled(self) -> frozenset[str] | None:
        try:
            return disabled_users(self._cluster)
        except RefusedError as error:
            if error.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # The user may list users, but not read the setting with the disabled ones.
                return None
            raise
