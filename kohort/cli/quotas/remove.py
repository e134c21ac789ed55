"""``kohort quotas remove``: limits that no longer hold."""

import argparse

from kohort.admin.quotas import change_limits, list_limits
from kohort.cli.errors import NotFoundError
from kohort.cli.options import cluster_of
from kohort.cli.quotas.options import add_entity, entity_of, shown_entity
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "keys", metavar="KEY", nargs="*", help="all that there are if none is named"
    )
    add_entity(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    entity = entity_of(options)
    with cluster_of(options) as cluster:
        found = {one.entity: one.values for one in list_limits(cluster)}
        known = next((values for of, values in found.items() if dict(of) == dict(entity)), {})
        keys = options.keys or sorted(known)
        if not keys or not set(keys) <= set(known):
            raise NotFoundError("there is no such limit")
        change_limits(cluster, entity, {}, keys)
    for key in keys:
        print(f"{shown(shown_entity(entity))}: {key} removed")
