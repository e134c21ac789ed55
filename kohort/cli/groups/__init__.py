"""``kohort groups``: consumer groups, read over Kafka's protocol or from a rebalance history."""

import argparse

from kohort.cli.commands import Commands
from kohort.cli.groups import advice, history, reset_offsets, state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such group")
    state.add_list(commands)
    state.add_describe(commands)
    history.add_why(commands)
    advice.add_advise(commands)
    advice.add_report(commands)
    history.add_timeline(commands)
    reset_offsets.add_reset_offsets(commands)
    state.add_delete_offsets(commands)
    state.add_delete(commands)
