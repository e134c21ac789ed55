"""``kohort acl remove``: take away the rules that `kohort acl list` finds by the same options."""

import argparse

from kohort.admin.access import list_rules, remove_rules
from kohort.broker.core.security.acls import RuleFilter
from kohort.cli.acl.options import add_filter, wanted
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_filter(parser)
    parser.add_argument("--all", action="store_true", help="all rules there are")
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    meant = wanted(options)
    if (meant == RuleFilter()) is not options.all:
        raise UsageError("say which rules by --principal, --operation, --resource, or else --all")
    with cluster_of(options) as cluster:
        rules = list_rules(cluster, meant)
        if not rules:
            raise NotFoundError("there is no such rule")
        remove_rules(cluster, rules)
    for rule in rules:
        print(f"removed: {rule}")
