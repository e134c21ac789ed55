"""The partition that a command is about."""

import argparse

from kohort.cli.errors import NotFoundError


def add_partition(parser: argparse.ArgumentParser) -> None:
    """Two arguments."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", metavar="PARTITION", type=_index)


def no_partition(options: argparse.Namespace) -> NotFoundError:
    """The error to raise if the partition does not exist."""
    return NotFoundError(f"there is no partition {options.partition} of {options.topic!r}")


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError("a number from 0")
    return int(text)
