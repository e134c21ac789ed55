"""``kohort users list``: all users, how they can authenticate, and who is disabled."""

import argparse

from kohort.admin.users import MECHANISMS, User
from kohort.cli.options import print_json
from kohort.cli.table import table
from kohort.cli.users.options import add_place, place_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with place_of(options) as place:
        users, disabled = place.users(), place.disabled()
    # Also users without their own password; otherwise the list would not show them as disabled.
    others = (disabled or frozenset()).difference(one.name for one in users)
    users = sorted([*users, *(User(name, {}) for name in others)])
    states = {one.name: None if disabled is None else one.name in disabled for one in users}
    if options.json:
        found = [
            {"name": one.name, "iterations": one.iterations, "disabled": states[one.name]}
            for one in users
        ]
        print_json({"users": found})
        return
    rows = [
        [one.name, *(one.iterations.get(name) for name in MECHANISMS), _STATES[states[one.name]]]
        for one in users
    ]
    for line in table(["USER", *MECHANISMS, "STATE"], rows):
        print(line)


_STATES = {True: "disabled", False: "enabled", None: None}
"""The state shown, by whether a user is disabled; None for a visitor who may not see it."""
