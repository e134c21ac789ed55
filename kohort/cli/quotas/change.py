"""``kohort quotas set``: limits of a user, a client id, both, or an address."""

import argparse

from kohort.admin.quotas import change_limits
from kohort.cli.options import cluster_of
from kohort.cli.quotas.options import add_entity, entity_of, shown_entity
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "limits", metavar="KEY=VALUE", nargs="+", type=_limit, help="producer_byte_rate=1048576"
    )
    add_entity(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    entity = entity_of(options)
    with cluster_of(options) as cluster:
        change_limits(cluster, entity, dict(options.limits))
    for key, value in options.limits:
        print(f"{shown(shown_entity(entity))}: {key}={value:g}")


def _limit(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=NUMBER") from None
