"""``kohort acl check``: may somebody do something, and which rule says so.

The rules are fetched from the broker and evaluated here, by the broker's code. Clients do not get
the broker's settings: super users are those that `--super-users` names.
"""

import argparse

from kohort.admin.access import list_rules
from kohort.broker.core.security.acls import Operation, ResourceType, RuleFilter
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import Principal
from kohort.cli.acl.options import add_rule, host, idle
from kohort.cli.errors import NotFoundError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.formats.text import shown

_SECRET_TOPICS = ("__consumer_offsets", "__rebalance_history", "__transaction_state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_rule(parser)
    parser.add_argument(
        "--host", type=host, default="127.0.0.1", help="from this address (%(default)s)"
    )
    parser.add_argument(
        "--super-users", default="", help="the broker's setting, as in User:a;User:b"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="the broker has allow.everyone.if.no.acl.found=true",
    )
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError; NotFoundError if any answer is no."""
    with cluster_of(options) as cluster:
        rules = list_rules(cluster, RuleFilter())
    authorizer = Authorizer(
        super_users=[one.strip() for one in options.super_users.split(";") if one.strip()],
        allow_everyone_if_no_acl_found=options.open,
        rules=rules,
    )
    kind, _, name = options.principal.partition(":")
    who, of = Principal(kind, name), options.resource
    explanations = [
        (one, authorizer.explain(who, options.host, one, of.type, of.name))
        for one in options.operations
    ]
    overseen = _overseen(authorizer, who, options.host)
    if options.json:
        answers = [
            {"operation": one.name, "allowed": explained.allowed, "reason": explained.reason}
            for one, explained in explanations
        ]
        print_json({"answers": answers, "reads_internal_topics": overseen})
    else:
        for one, explained in explanations:
            answer = "yes" if explained.allowed else "no"
            print(f"{one.name}: {answer}, by {shown(explained.reason)}")
        for sentence in idle(options):
            print(sentence)
        for topic in overseen:
            print(f"Beware: {shown(options.principal)} may read {topic}, where all groups are seen")
    if not all(explained.allowed for _, explained in explanations):
        hint = (
            "" if options.super_users else "; --super-users tells whom the broker's settings name"
        )
        raise NotFoundError(f"the answer is no{hint}")


def _overseen(authorizer: Authorizer, who: Principal, host: str) -> list[str]:
    """Internal topics that the principal may read."""
    topic = ResourceType.TOPIC
    return [
        name
        for name in _SECRET_TOPICS
        if authorizer.explain(who, host, Operation.READ, topic, name).allowed
    ]
