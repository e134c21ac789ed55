"""``kohort users enable``: users who were disabled can authenticate again."""

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
            was_disabled = place.enable(name)
            # A user who is gone, or has never had a password here, may be disabled all the same.
            if not was_disabled and not place.users([name]):
                raise NotFoundError(f"there is no user {name!r}")
            print(f"{shown(name)}: {'enabled' if was_disabled else 'was not disabled'}")
