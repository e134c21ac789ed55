"""The ``kohort`` command.

``kohort serve`` starts the broker; ``kohort pipeline`` runs Spark jobs; most other commands are
clients of a broker. A command's module is imported when the command is called, so that clients do
not pay for the import of a broker. ``python -m kohort`` is the same command.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from kohort.cli.commands import Parser, sentence
from kohort.version import VERSION

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Executes a command and returns the exit code."""

COMMANDS: Final = {
    "serve": ("start the broker", "kohort.cli.serve"),
    "status": ("brokers, disks and partitions at a glance", "kohort.cli.status"),
    "topics": ("topics: list, describe, create, alter, trim, delete", "kohort.cli.topics"),
    "produce": ("append a record for each line of input", "kohort.cli.produce"),
    "consume": ("print the records of a topic", "kohort.cli.consume"),
    "groups": ("consumer groups: their state, and why they rebalanced", "kohort.cli.groups"),
    "watch": ("why groups of any Kafka cluster rebalanced", "kohort.cli.watch"),
    "transactions": ("transactions, and which block consumers", "kohort.cli.transactions"),
    "acl": ("access rules: list, add, remove, check", "kohort.cli.acl"),
    "quotas": ("limits on clients: list, set, remove", "kohort.cli.quotas"),
    "users": ("users: list, add, disable, remove, and their passwords", "kohort.cli.users"),
    "config": ("settings: list, check, get, set, delete", "kohort.cli.config"),
    "export-kafka": (
        "convert a stopped Kohort's data directory to Kafka's",
        "kohort.cli.kafka_directory:add_export",
    ),
    "import-kafka": (
        "convert a stopped Kafka's data directory to Kohort's",
        "kohort.cli.kafka_directory:add_import",
    ),
    "doctor": ("check whether this machine can run a broker", "kohort.cli.doctor"),
    "dump-log": ("the batches and records of segment files", "kohort.cli.dump_log"),
    "completion": ("completion script for bash, zsh, tcsh and fish", "kohort.cli.completion"),
    "testing": ("brokers for tests in any language", "kohort.testing.command"),
    "pipeline": ("Spark jobs: topics and rebalances into tables", "kohort.cli.pipeline"),
}
"""Commands by name, each with its summary and the function that adds its arguments and sets `run`.

A function is written as ``module:function``; a module alone means its ``add_arguments``.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given[:1]).parse_args(given)
    run: Run = options.run
    return run(options)


def whole_parser() -> Parser:
    return _parser(COMMANDS)


def _parser(wanted: Collection[str]) -> Parser:
    """Return a parser of the commands in `wanted`, with their arguments; if none of these exists, a
    parser of all commands, without arguments.
    """
    parser = Parser(
        prog="kohort", description="A Kafka broker in Python, and tools for consumer groups."
    )
    parser.add_argument("--version", action="version", version=f"kohort {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    known = COMMANDS.keys() & wanted
    for name, (summary, function) in COMMANDS.items():
        if known and name not in known:
            continue
        command = commands.add_parser(name, help=summary, description=sentence(summary))
        if known:
            module, _, attribute = function.partition(":")
            getattr(importlib.import_module(module), attribute or "add_arguments")(command)
    return parser
