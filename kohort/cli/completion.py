"""``kohort completion``: what a shell needs to complete commands and options."""

import argparse
from typing import Final

import shtab

SHELLS: Final = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a script for the shell. bash: kohort completion bash > "
        "~/.local/share/bash-completion/completions/kohort; zsh: kohort completion zsh > "
        "a file _kohort in a directory of fpath."
    )
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from kohort.cli import whole_parser  # noqa: PLC0415 - which imports this.

    print(shtab.complete(whole_parser(), options.shell))
    return 0
