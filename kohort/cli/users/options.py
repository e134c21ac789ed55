"""Options that several commands on users have, and where users are looked for."""

import argparse
import getpass
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.disabled_users import disable_user, disabled_users, enable_user
from kohort.admin.users import (
    ITERATIONS,
    MECHANISMS,
    Password,
    User,
    list_users,
    remove_user,
    set_password,
)
from kohort.cli.errors import UsageError
from kohort.cli.options import add_kafka, cluster_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN

PASSWORD_BYTES_MAX: Final = 4096


class Place(Protocol):
    """Where users are kept."""

    def users(self, names: Sequence[str] = ()) -> list[User]:
        """All of them, or those of `names` that there are."""
        ...

    def set_password(self, name: str, passwords: Sequence[Password]) -> None: ...

    def remove(self, user: User) -> None: ...

    def disabled(self) -> frozenset[str] | None:
        """Users who cannot authenticate for now; None for who may not see it."""
        ...

    def disable(self, name: str, *, disconnects: bool) -> None: ...

    def enable(self, name: str) -> bool:
        """Whether the user was disabled."""
        ...


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where: a running broker, or the data directory of one that is stopped."""
    add_kafka(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data directory of a broker that is stopped, in place of a running one: how the"
        " first user comes to be",
    )


def add_password(parser: argparse.ArgumentParser, *, default: str = "both") -> None:
    """Add the options for reading and hashing a password. `default` is the help text for the
    mechanisms that are set without --mechanism.
    """
    parser.add_argument(
        "--password-fd",
        type=int,
        metavar="FD",
        help="read the password from this file descriptor (0 is standard input) and not from the"
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
        help=f"how often to hash, {ITERATIONS_MIN} to {ITERATIONS_MAX} (%(default)s)",
    )


def read_password(options: argparse.Namespace) -> str:
    """The new password, from the terminal or a descriptor. Raises UsageError."""
    if not ITERATIONS_MIN <= options.iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations is {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if options.password_fd is None:
        password = _from_terminal()
    else:
        password = _from_descriptor(options.password_fd)
    if not password or "\0" in password:
        raise UsageError("the password is empty, or has a NUL in it")
    return password


def _from_terminal() -> str:
    try:
        with warnings.catch_warnings():
            # Where it would be shown while it is typed.
            warnings.simplefilter("error", getpass.GetPassWarning)
            password = getpass.getpass("New password: ")
            again = getpass.getpass("Once more: ")
    except (getpass.GetPassWarning, EOFError):
        raise UsageError(
            "there is no terminal to ask for the password; --password-fd 0 reads it from standard"
            " input"
        ) from None
    if again != password:
        raise UsageError("the two are not the same")
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
def place_of(options: argparse.Namespace, *, makes: bool = False) -> Iterator[Place]:
    """Where the users are; `makes` says that a data directory is made if there is none.

    Raises UsageError, UnavailableError.
    """
    if options.data is not None:
        # Only needed to read a data directory, not to ask a broker.
        from kohort.cli.users.stopped_broker import stopped_broker  # noqa: PLC0415

        with stopped_broker(options.data, makes=makes) as place:
            yield place
        return
    with cluster_of(options) as cluster:
        yield _Running(cluster)


class _Running:
    """A running broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def users(self, names: Sequence[str] = ()) -> list[User]:
        return list_users(self._cluster, names)

    def set_password(self, name: str, passwords: Sequence[Password]) -> None:
        set_password(self._cluster, name, passwords)

    def remove(self, user: User) -> None:
        remove_user(self._cluster, user)

    def disabled(self) -> frozenset[str] | None:
        try:
            return disabled_users(self._cluster)
        except RefusedError as error:
            if error.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # Users may be listed with fewer rights than settings.
                return None
            raise

    def disable(self, name: str, *, disconnects: bool) -> None:
        disable_user(self._cluster, name, disconnects=disconnects)

    def enable(self, name: str) -> bool:
        return enable_user(self._cluster, name)
