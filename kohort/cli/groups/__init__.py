"""``kohort groups``: list and describe over Kafka's protocol, why and timeline over HTTP.

Exit codes: 0, also when there is nothing to tell; 1 if there is no such group; 2 for a command line
that cannot be meant; 3 if no broker answers, or something else is in the way.
"""

import argparse
import importlib
import os
import sys
from typing import Final

from kohort.cli.errors import CommandError

COMMANDS: Final = {
    "list": ("all groups", "kohort.cli.groups.list_groups"),
    "describe": ("members, partitions and lag of a group", "kohort.cli.groups.describe"),
    "why": ("why a group rebalanced, in one sentence", "kohort.cli.groups.why"),
    "timeline": ("who waited for whom in a rebalance, drawn", "kohort.cli.groups.timeline"),
}
"""Summary and module by name. A module has `add_arguments(parser)`, which sets `ask`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    parser.epilog = (
        "Exit codes: 0; 1 there is no such group; 2 usage; 3 no broker answers, or it cannot tell."
    )
    commands = parser.add_subparsers(dest="groups_command", required=True, metavar="COMMAND")
    for name, (summary, module) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, epilog=parser.epilog)
        importlib.import_module(module).add_arguments(command)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, and tell what came of it."""
    try:
        options.ask(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"kohort: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0
