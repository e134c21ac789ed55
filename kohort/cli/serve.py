"""``kohort serve``: the broker itself."""

import argparse

from kohort.broker import __main__ as daemon


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The daemon's own."""
    daemon.add_arguments(parser)
    parser.set_defaults(run=daemon.run)
