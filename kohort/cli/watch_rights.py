"""The rights that ``kohort watch`` may lack, and the commands that grant them."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.watch.core import left_out
from kohort.watch.reader import TOPIC


class _Rule(NamedTuple):
    operation: str
    kind: str
    name: str


class Right(Enum):
    READ_OFFSETS = _Rule("Read", "topic", TOPIC)
    DESCRIBE_GROUPS = _Rule("Describe", "group", "*")
    DESCRIBE_TOPICS = _Rule("Describe", "topic", "*")


def right_to_describe(error: int) -> Right:
    """Return the right that is missing if describing groups fails with `error`: Describe on groups,
    or on the topics that the members of consumer groups subscribe to.
    """
    is_topic = error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Right.DESCRIBE_TOPICS if is_topic else Right.DESCRIBE_GROUPS


def how_to_grant(right: Right, server: str) -> str:
    """Return the commands that grant a right to the user of `--command-config`."""
    return "Add a rule for the user of --command-config:\n" + _commands([right.value], server)


def how_to_grant_topic(topic: str, server: str) -> str:
    """Return the commands that grant the rights to store the history in a topic."""
    rules = [_Rule(operation, "topic", topic) for operation in ("Create", "Read", "Write")]
    rules.append(_Rule("Read", "group", left_out.OWN_GROUP))
    return "Add rules for the user of --command-config:\n" + _commands(rules, server)


def _commands(rules: Sequence[_Rule], server: str) -> str:
    kafkas = [
        f"  kafka-acls.sh --bootstrap-server {server} --add --allow-principal User:NAME"
        f" --operation {rule.operation} --{rule.kind} {_quoted(rule.name)}\n"
        for rule in rules
    ]
    kohorts = [
        f"  kohort acl add NAME {rule.operation.lower()} '{rule.kind}:{rule.name}'"
        f" --bootstrap-server {server}"
        for rule in rules
    ]
    return "".join(kafkas) + "or, on Kohort:\n" + "\n".join(kohorts)


def _quoted(name: str) -> str:
    return f"'{name}'" if name == "*" else name
