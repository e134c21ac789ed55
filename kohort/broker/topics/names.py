"""Which topic names are legal, by Kafka's rules and in its words."""

import re
from typing import Final

from kohort.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
"""Leaves room for the partition's number and a suffix in the name of its directory."""

CONSUMER_OFFSETS: Final = "__consumer_offsets"
REBALANCE_HISTORY: Final = "__rebalance_history"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE, "__share_group_state"}
)
"""Topics that the broker writes itself; clients may read them."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The log of Kafka's controllers. There is none here, and no topic may pretend to be it."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) if no topic can have this name."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def name_problem(name: str) -> str | None:
    """What is wrong with a topic name; None for a legal one."""
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
    """Equal for names that may not stand side by side: in metric names a dot becomes "_"."""
    return name.replace(".", "_")
