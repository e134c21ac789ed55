"""``kohort transactions``: what transactional producers do, and what they hold back.

All of it over Kafka's protocol (KIP-664), of any cluster since Kafka 3.0. Exit codes: 0, also when
there is nothing to tell; 1 if there is no such transactional id, partition or transaction; 2 for a
command line that cannot be meant; 3 if no broker answers, or something else is in the way.
"""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("transactional ids and their states", "kohort.cli.transactions.list_transactions"),
    "describe": ("one transaction, with its partitions", "kohort.cli.transactions.describe"),
    "why": ("what holds read_committed consumers back", "kohort.cli.transactions.why"),
    "abort": ("end a transaction that hangs in a partition", "kohort.cli.transactions.abort"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such thing")
