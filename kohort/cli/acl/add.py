"""``kohort acl add``: allow somebody something, or deny it."""

import argparse

from kohort.admin.access import add_rules
from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.users import list_users
from kohort.broker.core.security.acls import WILDCARD
from kohort.broker.core.security.session import ANONYMOUS, USER
from kohort.cli.acl.options import add_rule, host, idle, rules_of
from kohort.cli.options import add_kafka, cluster_of
from kohort.client.net.versions import UnsupportedVersionError
from kohort.formats.text import shown


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
        unknown = _is_unknown(cluster, options.principal)
    for rule in rules:
        print(f"added: {rule}")
    for sentence in idle(options):
        print(sentence)
    if unknown:
        name = shown(options.principal.partition(":")[2])
        print(
            f"Beware: no user is called {name}; the rule is for one of a certificate or of tokens,"
            " or for one who comes later"
        )


def _is_unknown(cluster: Cluster, principal: str) -> bool:
    """Whether there are users with passwords, and this is none of them."""
    kind, _, name = principal.partition(":")
    if kind != USER or name in {WILDCARD, ANONYMOUS.name} or "=" in name:
        # Of all clients, of those without a name, or of a certificate.
        return False
    try:
        return not list_users(cluster, [name]) and bool(list_users(cluster))
    except (RefusedError, UnsupportedVersionError):
        # One who makes rules may be denied the list of users, or the broker has none.
        return False
