"""Commands that ask a broker, gathered under one name: `kohort groups`, `kohort transactions`."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping

from kohort.cli.errors import CommandError


def add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, tuple[str, str]], *, nothing: str
) -> None:
    """Give `parser` one subcommand each.

    Args:
        commands: summary and module by name. A module has `add_arguments(parser)`, which sets
            `ask`.
        nothing: what exit code 1 means.
    """
    parser.epilog = f"Exit codes: 0; 1 {nothing}; 2 usage; 3 no broker answers, or it cannot tell."
    added = parser.add_subparsers(dest="asked", required=True, metavar="COMMAND")
    for name, (summary, module) in commands.items():
        command = added.add_parser(name, help=summary, epilog=parser.epilog)
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
