"""``kohort users remove``: users who cannot authenticate any more; their open connections stay."""

import argparse

from kohort.cli.errors import NotFoundError
from kohort.cli.users.options import add_place, place_of
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("users", metavar="NAME", nargs="+")
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with place_of(options) as place:
        for name in options.users:
            found = place.users([name])
            if not found:
                raise NotFoundError(f"there is no user {name!r}")
            place.remove(found[0])
            again = "" if not place.users([name]) else "; it has what kohort.users.file gives it"
            print(f"{shown(name)}: removed{again}")
