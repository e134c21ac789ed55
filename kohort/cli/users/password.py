"""``kohort users password``: change a user's password; open connections stay."""

import argparse

from kohort.admin.users import hashed
from kohort.cli.errors import NotFoundError
from kohort.cli.users.options import add_password, add_place, place_of, read_password
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME")
    add_password(parser, default="all that the user has")
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with place_of(options) as place:
        found = place.users([options.user])
        if not found:
            raise NotFoundError(f"there is no user {options.user!r}")
        password = read_password(options)
        # By default all that the user has: the old password must not remain valid for one of them.
        mechanisms = sorted(set(options.mechanism or found[0].iterations))
        place.set_password(options.user, hashed(password, mechanisms, options.iterations))
    print(f"{shown(options.user)}: changed for {', '.join(mechanisms)}")
