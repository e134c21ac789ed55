"""``kohort serve``: runs the broker."""

import argparse

from kohort.broker import __main__ as daemon


def add_arguments(parser: argparse.ArgumentParser) -> None:
    daemon.add_arguments(parser)
    parser.set_defaults(run=daemon.run)
