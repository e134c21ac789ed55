"""The ``kohort`` command.

``kohort serve`` starts the broker, exactly as ``python -m kohort`` does; ``kohort topics``,
``produce``, ``consume``, ``groups`` and ``transactions`` ask one; ``kohort pipeline`` runs Spark
jobs. A command's module is imported when it is called, so that asking does not cost the
import of a whole broker.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from kohort.cli.parser import Parser
from kohort.version import VERSION

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Carries out a command and returns the exit code."""

COMMANDS: Final = {
    "serve": ("start the broker", "kohort.cli.serve"),
    "topics": ("topics: list, describe, create, alter, delete", "kohort.cli.topics"),
    "produce": ("append a record for each line", "kohort.cli.produce"),
    "consume": ("print the records of a topic", "kohort.cli.consume"),
    "groups": ("consumer groups: what they do, and why they rebalanced", "kohort.cli.groups"),
    "transactions": ("transactional producers, and what they hold back", "kohort.cli.transactions"),
    "acl": ("access rules: list, add, remove, and what they allow", "kohort.cli.acl"),
    "quotas": ("limits on clients: list, set, remove", "kohort.cli.quotas"),
    "users": ("users: list, add, disable, remove, and their passwords", "kohort.cli.users"),
    "config": ("the broker's settings: list, check", "kohort.cli.config"),
    "export-kafka": ("a stopped broker's directory becomes Kafka's", "kohort.cli.export_kafka"),
    "import-kafka": ("a stopped Kafka's directory becomes Kohort's", "kohort.cli.import_kafka"),
    "doctor": ("is this machine fit for a broker", "kohort.cli.doctor"),
    "completion": ("for bash, zsh and tcsh", "kohort.cli.completion"),
    "testing": ("brokers for tests in any language", "kohort.testing.command"),
    "pipeline": ("Spark jobs: topics and rebalances into tables", "kohort.cli.pipeline"),
}
"""Summary and module by name. A module has `add_arguments(parser)`, which sets `run`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given[:1]).parse_args(given)
    run: Run = options.run
    return run(options)


def whole_parser() -> Parser:
    """The parser with all commands, for what wants to know them all."""
    return _parser(COMMANDS)


def _parser(wanted: Collection[str]) -> Parser:
    """The parser, with the arguments of these commands."""
    parser = Parser(
        prog="kohort", description="A Kafka broker in Python, and tools for consumer groups."
    )
    parser.add_argument("--version", action="version", version=f"kohort {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (summary, module) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in wanted:
            importlib.import_module(module).add_arguments(command)
    return parser
