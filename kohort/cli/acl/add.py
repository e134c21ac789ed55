"""``kohort acl add``: allow somebody something, or deny it."""

import argparse

from kohort.cli.acl.options import add_rule, host, idle, rules_of
from kohort.cli.options import add_kafka, cluster_of
from kohort.wire.access import add_rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_rule(parser)
    parser.add_argument(
        "--prefixed", action="store_true", help="all resources whose names begin like this"
    )
    parser.add_argument("--deny", action="store_true", help="deny it; that wins over what allows")
    parser.add_argument("--host", type=host, default="*", help="only from this numeric address")
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    rules = rules_of(options)
    with cluster_of(options) as cluster:
        add_rules(cluster, rules)
    for rule in rules:
        print(f"added: {rule}")
    for sentence in idle(options):
        print(sentence)
