"""``kohort topics``: topics of a Kohort or of a Kafka, without a JVM."""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("all topics", "kohort.cli.topics.list_topics"),
    "describe": ("partitions, offsets, sizes and configs", "kohort.cli.topics.describe"),
    "create": ("create topics", "kohort.cli.topics.create"),
    "alter": ("change configs, add partitions", "kohort.cli.topics.alter"),
    "delete": ("delete topics with all their records", "kohort.cli.topics.delete"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such topic")
