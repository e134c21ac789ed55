"""``kohort acl list``: the access rules, all or some."""

import argparse

from kohort.admin.access import list_rules
from kohort.broker.core.security.acls import Rule
from kohort.cli.acl.options import add_filter, wanted
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.table import table
from kohort.formats.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_filter(parser)
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        rules = sorted(list_rules(cluster, wanted(options)))
    if options.json:
        print_json({"rules": [as_json(rule) for rule in rules]})
        return
    head = ["RESOURCE", "NAME", "PATTERN", "PERMISSION", "PRINCIPAL", "HOST", "OPERATION"]
    for line in table(head, [_row(rule) for rule in rules]):
        print(line)


def as_json(rule: Rule) -> dict[str, str]:
    """A rule in Kafka's words."""
    return {
        "resource_type": rule.resource_type.name,
        "resource_name": rule.resource_name,
        "pattern": rule.pattern.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "permission": rule.permission.name,
    }


def _row(rule: Rule) -> list[str]:
    return [
        rule.resource_type.name,
        shown(rule.resource_name),
        rule.pattern.name,
        rule.permission.name,
        shown(rule.principal),
        shown(rule.host),
        rule.operation.name,
    ]
