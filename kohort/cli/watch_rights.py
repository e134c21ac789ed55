"""The rights that ``kohort watch`` may lack, and the commands that grant them."""

from enum import Enum
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.watch.reader import TOPIC


class _Rule(NamedTuple):
    operation: str
    kind: str
    name: str


class Right(Enum):
    """A right, as a rule of Kafka's authorizer."""

    READ_OFFSETS = _Rule("Read", "topic", TOPIC)
    DESCRIBE_GROUPS = _Rule("Describe", "group", "*")
    DESCRIBE_TOPICS = _Rule("Describe", "topic", "*")


def right_to_describe(error: int) -> Right:
    """Return what is missing if a description is refused: a right to the group, or to a topic that
    a member of a consumer group subscribes to.
    """
    is_topic = error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Right.DESCRIBE_TOPICS if is_topic else Right.DESCRIBE_GROUPS


def how_to_grant(right: Right, server: str) -> str:
    """Return the commands that grant a right to the user of the command, one per line."""
    operation, kind, name = right.value
    quoted = f"'{name}'" if name == "*" else name
    return (
        "Add a rule for the user of --command-config:\n"
        f"  kafka-acls.sh --bootstrap-server {server} --add --allow-principal User:NAME"
        f" --operation {operation} --{kind} {quoted}\n"
        f"or, on Kohort:\n  kohort acl add NAME {operation.lower()} '{kind}:{name}'"
        f" --bootstrap-server {server}"
    )
