"""``kohort groups``: list and describe over Kafka's protocol, why, timeline, advise and report
over HTTP.

Exit codes: 0, also when there is nothing to tell; 1 if there is no such group; 2 for a command line
that cannot be meant; 3 if no broker answers, or something else is in the way.
"""

import argparse
from typing import Final

from kohort.cli.broker_commands import add_commands

COMMANDS: Final = {
    "list": ("all groups", "kohort.cli.groups.list_groups"),
    "describe": ("members, partitions and lag of a group", "kohort.cli.groups.describe"),
    "why": ("why a group rebalanced, in one sentence", "kohort.cli.groups.why"),
    "advise": ("which settings would have spared a group rebalances", "kohort.cli.groups.advise"),
    "report": ("why it rebalanced and what to change, as a page", "kohort.cli.groups.report"),
    "timeline": ("who waited for whom in a rebalance, drawn", "kohort.cli.groups.timeline"),
    "reset-offsets": ("where a group reads on", "kohort.cli.groups.reset_offsets"),
    "delete": ("forget groups without members", "kohort.cli.groups.delete"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One command each."""
    add_commands(parser, COMMANDS, nothing="there is no such group")
