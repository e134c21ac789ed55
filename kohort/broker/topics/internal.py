"""Configs of the topics that the broker creates for itself."""

from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.topics.names import CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE

HISTORY_SEGMENT_BYTES: Final = 4 * 1024 * 1024
"""Small, because a start reads whole segments, and retention removes whole segments."""


_SEGMENT_BYTES_MIN: Final = 1 << 20
"""The minimum of segment.bytes. Kafka starts with a lower value, but cannot create the topic."""


def internal_topic_configs(name: str, config: BrokerConfig) -> dict[str, str]:
    """Return the configs with which an internal topic is created; {} for one that the broker never
    creates.
    """
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
    if name == REBALANCE_HISTORY:
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": str(config.kohort_rebalance_history_retention_ms),
            "retention.bytes": str(config.kohort_rebalance_history_retention_bytes),
            "segment.bytes": str(HISTORY_SEGMENT_BYTES),
        }
    return {}


def _segment_bytes(wanted: int) -> str:
    return str(max(wanted, _SEGMENT_BYTES_MIN))
