"""Checks topic names by Kafka's rules, with its error messages; lists the broker's own topics."""

import re
from typing import Final

from kohort.broker.config import BrokerConfig, TopicConfig
from kohort.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
"""Maximum length of a topic name; leaves room for the partition number and a suffix in the
directory name.
"""

CONSUMER_OFFSETS: Final = "__consumer_offsets"
REBALANCE_HISTORY: Final = "__rebalance_history"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE, SHARE_GROUP_STATE}
)
"""Topics that the broker writes itself; clients may read them."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The log of Kafka's controllers. It does not exist here, and no topic may have its name."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")

HISTORY_SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""segment.bytes of the rebalance history: small, because startup reads, and retention removes,
whole segments.
"""

_SEGMENT_BYTES_MIN: Final = 1 << 20
"""Minimum of segment.bytes. With a lower value Kafka starts, but cannot create the topic."""


def check_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION) if no topic can have this name."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def name_problem(name: str) -> str | None:
    """Return the reason why a topic name is illegal; None if it is legal."""
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


def dead_letter_topic_problem(name: str, config: BrokerConfig) -> str | None:
    """Return why a topic with this name must not be a dead-letter topic; None if it may be one."""
    if name.startswith("__"):
        return "DLQ topic name must not start with '__'"
    prefix = config.errors_deadletterqueue_topic_name_prefix
    if not name.startswith(prefix):
        return f"DLQ topic name '{name}' does not start with the DLQ topic prefix '{prefix}'"
    return name_problem(name)


def collision_key(name: str) -> str:
    """Return a key that is equal for names that collide: a dot becomes "_"."""
    return name.replace(".", "_")


def internal_topic_configs(name: str, config: BrokerConfig) -> dict[str, str]:
    """Return the configs with which the broker creates an internal topic; {} for other topics."""
    if name == CONSUMER_OFFSETS:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": _segment_bytes(config.offsets_topic_segment_bytes),
        }
    if name == TRANSACTION_STATE:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": _segment_bytes(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_GROUP_STATE:
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": _segment_bytes(config.share_coordinator_state_topic_segment_bytes),
        }
    if name == REBALANCE_HISTORY:
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": str(config.kohort_rebalance_history_retention_ms),
            "retention.bytes": str(config.kohort_rebalance_history_retention_bytes),
            "segment.bytes": str(HISTORY_SEGMENT_BYTES),
        }
    return {}


def check_internal_topic_configs(name: str, config: TopicConfig) -> None:
    """Raise KafkaError(INVALID_CONFIG) for configs with which an internal topic would lose needed
    records: the state of a share-partition consists of all records since its last snapshot. Kafka
    accepts such configs.
    """
    if name == SHARE_GROUP_STATE and (
        config.is_compacted or config.retention_ms >= 0 or config.retention_bytes >= 0
    ):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name} must not be compacted, and must have retention.ms=-1 and retention.bytes=-1:"
            " the broker deletes its records itself.",
        )


def _segment_bytes(wanted: int) -> str:
    return str(max(wanted, _SEGMENT_BYTES_MIN))
