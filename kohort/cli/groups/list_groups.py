"""``kohort groups list``: the groups of a cluster, by name."""

import argparse

from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.protocol.messages.list_groups import ListedGroup
from kohort.wire.groups import list_groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        groups = list_groups(cluster)
    if options.json:
        print_json({"groups": [_as_json(group) for group in groups]})
        return
    if not groups:
        print("no groups")
        return
    rows = [
        (group.group_id, group.group_state, group.group_type, group.protocol_type)
        for group in groups
    ]
    for line in table(("GROUP", "STATE", "TYPE", "PROTOCOL TYPE"), rows):
        print(line)


def _as_json(group: ListedGroup) -> dict[str, str | None]:
    return {
        "group": group.group_id,
        "state": group.group_state or None,
        "type": group.group_type or None,
        "protocol_type": group.protocol_type or None,
    }
