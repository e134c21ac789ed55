"""``kohort completion``: a script that completes commands and options in a shell."""

import argparse
from typing import Final

import shtab

SHELLS: Final = ("bash", "zsh", "tcsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a completion script. bash: kohort completion bash > "
        "~/.local/share/bash-completion/completions/kohort; zsh: kohort completion zsh > "
        "_kohort in a directory of fpath; fish: kohort completion fish > "
        "~/.config/fish/completions/kohort.fish."
    )
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kohort.cli import whole_parser  # noqa: PLC0415 - it imports this module.

    print(shtab.complete(whole_parser(), options.shell))
    return 0
