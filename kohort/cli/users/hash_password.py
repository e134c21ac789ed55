"""``kohort users hash``: lines for the file `kohort.users.file`; no broker is asked."""

import argparse

from kohort.admin.users import MECHANISMS, hashed
from kohort.broker.security.users_file import credential_line
from kohort.cli.errors import UsageError
from kohort.cli.users.credentials import credential_of
from kohort.cli.users.options import add_password, read_password


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME")
    add_password(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    password = read_password(options)
    mechanisms = list(dict.fromkeys(options.mechanism or MECHANISMS))
    for one in hashed(password, mechanisms, options.iterations):
        try:
            print(credential_line(options.user, one.mechanism, credential_of(one)))
        except ValueError as error:
            raise UsageError(f"NAME: {error}") from None
