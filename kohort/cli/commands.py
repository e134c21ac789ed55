"""Parses and executes commands and subcommands, like `kohort groups list`."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from kohort.cli.errors import CommandError

Handler: TypeAlias = Callable[[argparse.Namespace], None]
"""Executes a command and prints its result. Raises CommandError."""


class _Formatter(argparse.HelpFormatter):
    """Formats help as wide as the terminal. argparse would get the width from shutil, even if no
    help is printed; that import takes 2 ms of each start of a broker.
    """

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (ValueError, OSError):
            columns = 80
        super().__init__(prog, width=columns - 2)


class Parser(argparse.ArgumentParser):
    """Prints errors in one line, without the usage text, and help with examples; parsers of
    subcommands do the same.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of ArgumentParser.
        super().__init__(formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; for an unknown choice or option, suggest the most similar."""
        import difflib  # noqa: PLC0415 - only for errors.

        head, _, choices = message.partition(" (choose from ")
        names = choices.rstrip(")").replace("'", "").split(", ") if choices else self.options()
        close = difflib.get_close_matches(head.rpartition(": ")[2].strip("'"), names, 1)
        if close:
            message = f"{head}; did you mean {close[0]!r}?"
        self.exit(2, f"{self.prog}: {message} (--help tells more)\n")

    def options(self) -> list[str]:
        """Return the options of the command and of its subcommands."""
        names: list[str] = []
        for action in self._actions:
            names += action.option_strings
            if isinstance(action.choices, dict):
                for parser in action.choices.values():
                    names += parser.options() if isinstance(parser, Parser) else []
        return names

    def format_help(self) -> str:
        from kohort.cli.examples import examples_text  # noqa: PLC0415 - only for help.

        return super().format_help() + examples_text(self.prog)


def sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def exit_codes(failure: str) -> str:
    """Text about the exit codes of a command; `failure` is the meaning of 1."""
    return (
        f"Exit codes: 0; 1 {failure}; 2 usage; 3 no broker answers, or it is starting; "
        "4 it refuses; 5 exists already."
    )


class Commands:
    """Adds subcommands to the parser of a command.

    Args:
        failure: meaning of exit code 1.
    """

    def __init__(self, parser: argparse.ArgumentParser, *, failure: str) -> None:
        self._epilog = exit_codes(failure)
        parser.epilog = self._epilog
        parser.set_defaults(run=run)
        self._parsers = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")

    def add(
        self, name: str, summary: str, handler: Handler, *, description: str | None = None
    ) -> argparse.ArgumentParser:
        parser = self._parsers.add_parser(
            name,
            help=summary,
            description=description or sentence(summary),
            epilog=self._epilog,
        )
        parser.set_defaults(handler=handler)
        return parser


def run(options: argparse.Namespace) -> int:
    """Execute the command and return the exit code; errors are printed."""
    try:
        options.handler(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"kohort: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has exited. Otherwise Python reports this again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0
