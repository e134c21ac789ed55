"""Legal topic names, by Kafka's rules and with its messages."""

import re
from typing import Final

from kohort.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
"""Leaves room for the partition number and a suffix in the directory name."""

CONSUMER_OFFSETS: Final = "__consumer_offsets"
REBALANCE_HISTORY: Final = "__rebalance_history"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE, "__share_group_state"}
)
"""Topics that the broker writes itself; clients may read them."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The log of Kafka's controllers. It does not exist here, and no topic may have its name."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) if no topic can have this name."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name; None if it is legal."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Return a key that is equal for names that may not coexist:
    in metric names a dot becomes "_".
    """
    return name.replace(".", "_")
