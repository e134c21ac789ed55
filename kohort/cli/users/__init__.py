"""``kohort users``: who can authenticate by SCRAM and PLAIN, on a Kohort or a Kafka."""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("all users, without their secrets", "kohort.cli.users.list_users"),
    "add": ("add a user with a password", "kohort.cli.users.add"),
    "password": ("give a user another password", "kohort.cli.users.password"),
    "hash": ("print a user's lines for kohort.users.file", "kohort.cli.users.hash_password"),
    "disable": ("let users authenticate no more, until enabled", "kohort.cli.users.disable"),
    "enable": ("let users authenticate again", "kohort.cli.users.enable"),
    "remove": ("take a user's credentials away", "kohort.cli.users.remove"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such user")
