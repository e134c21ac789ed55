"""``kohort config``: the broker's settings, without the documents at hand and without a broker."""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("settings, their defaults and what they mean", "kohort.cli.config.list_settings"),
    "check": ("what a start would say of its settings", "kohort.cli.config.check"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such setting, or one cannot be used")
