"""Topic configs: all of Kafka 4.4 with their defaults; `honoured` marks those with an effect here.

A topic stores only its overrides. `effective` combines them with the broker's current settings.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from kohort.broker.config.broker import BrokerConfig, effective_ms
from kohort.broker.config.settings import Setting, Settings, Value, settings_of

_THROTTLED: Final = r"\*|\d+:\d+(,\d+:\d+)*|"


def _check_throttled(items: tuple[str, ...]) -> None:
    if not re.fullmatch(_THROTTLED, ",".join(items)):
        raise ValueError(
            "must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


class TopicConfig(
    Settings,
    checks={
        "follower.replication.throttled.replicas": _check_throttled,
        "leader.replication.throttled.replicas": _check_throttled,
    },
):
    """Topic configs."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_copy_lag_bytes: int
    remote_copy_lag_ms: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    internal_segment_bytes: int | None

    @property
    def is_compacted(self) -> bool:
        """Whether old records are deleted when a newer one has the same key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy


TOPIC_SETTINGS: Mapping[str, Setting] = settings_of(TopicConfig)
"""Every topic config by name, internal ones included."""


class InvalidConfigError(ValueError):
    """A topic config that does not exist, or values that contradict each other."""


def parse_overrides(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Parse the overrides of a topic; raises InvalidValueError or InvalidConfigError."""
    values = {}
    for name, text in overrides.items():
        known = TOPIC_SETTINGS.get(name)
        if known is None:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
        values[name] = known.parse(text)
    return values


def broker_default(known: Setting, broker: BrokerConfig) -> Value:
    """Return the value of a topic config without an override."""
    source = known.declared.falls_back_to
    if source is None:
        return known.default
    if source.endswith(".ms"):
        value: Value = effective_ms(broker, source)
    else:
        value = getattr(broker, source.replace(".", "_"))
    return known.default if value is None else value


def effective(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the configs of a topic with these overrides.

    Raises InvalidValueError, or InvalidConfigError for an unknown config, contradictory values and
    tiered storage.
    """
    values = {name: broker_default(known, broker) for name, known in TOPIC_SETTINGS.items()}
    values.update(parse_overrides(overrides))
    config = TopicConfig(
        **{TOPIC_SETTINGS[name].attribute: value for name, value in values.items()}
    )
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) "
            f"> max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if config.internal_segment_bytes is not None:
        return dataclasses.replace(config, segment_bytes=config.internal_segment_bytes)
    return config
