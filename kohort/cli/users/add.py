"""``kohort users add``: a new user, who can authenticate at once."""

import argparse

from kohort.admin.users import MECHANISMS, hashed
from kohort.cli.errors import RefusedCommandError
from kohort.cli.users.options import add_password, add_place, place_of, read_password
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="NAME")
    add_password(parser)
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    is_new = options.data is not None and not _is_data_directory(options.data)
    with place_of(options, makes=True) as place:
        if place.users([options.user]):
            raise RefusedCommandError(
                f"there is a user {options.user!r}; `kohort users password` changes it"
            )
        password = read_password(options)
        mechanisms = options.mechanism or list(MECHANISMS)
        place.set_password(options.user, hashed(password, mechanisms, options.iterations))
    print(f"{shown(options.user)}: added for {', '.join(mechanisms)}")
    if is_new:
        print(f"{options.data} is new; a broker has these users if its log.dirs names it")


def _is_data_directory(directory: str) -> bool:
    # Only needed with a data directory, as in `place_of`.
    from kohort.cli.users.stopped_broker import is_data_directory  # noqa: PLC0415

    return is_data_directory(directory)
