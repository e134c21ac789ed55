"""``kohort acl``: who may do what, on a Kohort or a Kafka with an authorizer."""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("the rules, all or some", "kohort.cli.acl.list_rules"),
    "add": ("allow or deny somebody something", "kohort.cli.acl.add"),
    "remove": ("take rules away", "kohort.cli.acl.remove"),
    "check": ("may somebody do something, and by which rule", "kohort.cli.acl.check"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such rule, or the answer is no")
