"""``kohort groups list``: the groups of a cluster, which of them lag, and which rebalance."""

import argparse
from typing import Any

from kohort.admin.group_overview import GroupRow, overview
from kohort.cli.errors import UnavailableError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.protocol.errors import DecodeError

HEAD = ("GROUP", "STATE", "TYPE", "MEMBERS", "LAG", "REBALANCES IN 1 H", "PROTOCOL TYPE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        try:
            groups = overview(cluster)
        except DecodeError as error:
            raise UnavailableError(f"the rebalance history cannot be read: {error}") from error
    if options.json:
        print_json({"groups": [_as_json(group) for group in groups]})
        return
    if not groups:
        print("no groups")
        return
    rows = [
        (
            group.listed.group_id,
            group.listed.group_state,
            group.listed.group_type,
            group.members,
            group.lag,
            group.rebalances,
            group.listed.protocol_type,
        )
        for group in groups
    ]
    for line in table(HEAD, rows):
        print(line)


def _as_json(group: GroupRow) -> dict[str, Any]:
    return {
        "group": group.listed.group_id,
        "state": group.listed.group_state or None,
        "type": group.listed.group_type or None,
        "protocol_type": group.listed.protocol_type or None,
        "members": group.members,
        "lag": group.lag,
        "rebalances_in_last_hour": group.rebalances,
    }
