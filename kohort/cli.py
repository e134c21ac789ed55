"""The ``kohort`` command.

``kohort serve`` starts the broker, exactly as ``python -m broker`` does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import broker.__main__ as daemon
from broker.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="kohort", description="A Kafka broker in Python, and tools for its consumer groups."
    )
    parser.add_argument("--version", action="version", version=f"kohort {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="start the broker")
    daemon.add_arguments(serve)
    options = parser.parse_args(arguments)
    return daemon.run(options)


if __name__ == "__main__":
    sys.exit(main())
