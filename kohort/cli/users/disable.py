"""``kohort users disable``: users who cannot authenticate, and keep their passwords and rights."""

import argparse

from kohort.cli.errors import NotFoundError
from kohort.cli.users.options import add_place, place_of
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("users", metavar="NAME", nargs="+")
    parser.add_argument(
        "--disconnect",
        action="store_true",
        help="close the connections of these users that are open, which stay otherwise",
    )
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with place_of(options) as place:
        for name in options.users:
            if not place.users([name]):
                raise NotFoundError(
                    f"there is no user {name!r}; one of a certificate or of tokens is disabled"
                    " by the setting kohort.users.disabled"
                )
            place.disable(name, disconnects=options.disconnect)
            also = ", disconnected" if options.disconnect else ""
            print(f"{shown(name)}: disabled{also}")
