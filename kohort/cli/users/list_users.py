"""``kohort users list``: all users, and how they can authenticate."""

import argparse

from kohort.cli.options import print_json
from kohort.cli.table import table
from kohort.cli.users.options import add_place, place_of
from kohort.wire.users import MECHANISMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with place_of(options) as place:
        users = place.users()
    if options.json:
        print_json({"users": [{"name": one.name, "iterations": one.iterations} for one in users]})
        return
    rows = [[one.name, *(one.iterations.get(name) for name in MECHANISMS)] for one in users]
    for line in table(["USER", *MECHANISMS], rows):
        print(line)
