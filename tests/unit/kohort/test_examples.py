"""The examples in the help of each command."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from kohort.cli import whole_parser
from kohort.cli.examples import EXAMPLES
from kohort.cli.pipeline import NEEDS

PARSER = whole_parser()


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands without subcommands."""
    nested = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not nested:
        yield parser
    for action in nested:
        for child in action.choices.values():
            yield from leaves(child)


def test_every_command_has_one() -> None:
    names = {parser.prog.partition(" ")[2] for parser in leaves(PARSER)}
    assert EXAMPLES.keys() - {""} == names


@pytest.mark.parametrize("example", [text for texts in EXAMPLES.values() for text in texts])
def test_they_are_valid(example: str) -> None:
    words = shlex.split(example)
    if words[0] == "pipeline":
        for package in NEEDS:
            pytest.importorskip(package)
    for redirection in ("<", ">", ">>"):
        if redirection in words:
            words = words[: words.index(redirection)]
    PARSER.parse_args(words)


def test_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PARSER.parse_args(["topics", "trim", "--help"])
    printed = capsys.readouterr().out
    for example in EXAMPLES["topics trim"]:
        assert f"  kohort {example}\n" in printed
