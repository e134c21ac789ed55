"""``kohort quotas``: limits on clients, on a Kohort or a Kafka."""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("all limits", "kohort.cli.quotas.list_limits"),
    "set": ("set limits of a user, a client id, both, or an address", "kohort.cli.quotas.change"),
    "remove": ("take limits away", "kohort.cli.quotas.remove"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such limit")
