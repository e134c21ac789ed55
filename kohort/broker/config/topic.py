"""Topic configs: all of Kafka 4.4 with their defaults; `honoured` marks those with an effect here.

A topic stores only its overrides. `effective` combines them with the broker's current settings.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from kohort.broker.config.broker import BrokerConfig, effective_ms
from kohort.broker.config.settings import (
    LONG_MAX,
    Boolean,
    Double,
    Int,
    List,
    Long,
    Setting,
    Settings,
    String,
    Value,
    setting,
    settings_of,
)

_THROTTLED: Final = r"\*|\d+:\d+(,\d+:\d+)*|"


def _check_throttled(items: tuple[str, ...]) -> None:
    if not re.fullmatch(_THROTTLED, ",".join(items)):
        raise ValueError(
            "must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _default_of(broker_setting: str, *, doc: str) -> Any:  # noqa: ANN401 - the type is declared.
    """Declare a topic config with the default and the bounds of a broker setting."""
    setting_of_broker = settings_of(BrokerConfig)[broker_setting]
    declared = setting_of_broker.declared
    return setting(
        setting_of_broker.default,
        doc=doc,
        at_least=declared.at_least,
        at_most=declared.at_most,
        one_of=declared.one_of,
        or_exactly=declared.or_exactly,
        falls_back_to=broker_setting,
        honoured=declared.honoured,
    )


class TopicConfig(Settings):
    """Topic configs."""

    cleanup_policy: List = _default_of(
        "log.cleanup.policy",
        doc="`delete` drops old segments by time and size, `compact` keeps at least the last "
        "record of each key; both may be given, or neither.",
    )
    compression_gzip_level: Int = _default_of(
        "compression.gzip.level",
        doc="Compression by the broker, which stores batches as the producer sent them.",
    )
    compression_lz4_level: Int = _default_of(
        "compression.lz4.level",
        doc="Compression by the broker, which stores batches as the producer sent them.",
    )
    compression_type: String = _default_of(
        "compression.type",
        doc="Compression by the broker, which stores batches as the producer sent them.",
    )
    compression_zstd_level: Int = _default_of(
        "compression.zstd.level",
        doc="Compression by the broker, which stores batches as the producer sent them.",
    )
    delete_retention_ms: Long = _default_of(
        "log.cleaner.delete.retention.ms",
        doc="How long a tombstone stays readable in a compacted topic after it was compacted.",
    )
    errors_deadletterqueue_group_enable: Boolean = setting(
        False, doc="Whether share groups may write dead letters to it."
    )
    file_delete_delay_ms: Long = _default_of(
        "log.segment.delete.delay.ms",
        doc="How long the files of a deleted segment stay on disk under another name.",
    )
    flush_messages: Long = _default_of(
        "log.flush.interval.messages",
        doc="Number of records after which a log is forced to disk; with 1, an acks=all "
        "response waits for it. The default leaves flushing to the operating system.",
    )
    flush_ms: Long = setting(
        LONG_MAX,
        at_least=0,
        falls_back_to="log.flush.interval.ms",
        doc="Milliseconds after which a record not yet on disk is forced there.",
    )
    follower_replication_throttled_replicas: List = setting(
        (),
        check=_check_throttled,
        honoured=False,
        doc="Throttled replicas; there are no followers.",
    )
    index_interval_bytes: Int = _default_of(
        "log.index.interval.bytes", doc="Bytes of log between two entries of its index."
    )
    leader_replication_throttled_replicas: List = setting(
        (),
        check=_check_throttled,
        honoured=False,
        doc="Throttled replicas; there are no followers.",
    )
    local_retention_bytes: Long = _default_of(
        "log.local.retention.bytes",
        doc="Part of tiered storage, which is not supported.",
    )
    local_retention_ms: Long = _default_of(
        "log.local.retention.ms",
        doc="Part of tiered storage, which is not supported.",
    )
    max_compaction_lag_ms: Long = _default_of(
        "log.cleaner.max.compaction.lag.ms",
        doc="A record older than this makes its compacted log due for compaction.",
    )
    max_decompressed_message_bytes: Int = _default_of(
        "max.decompressed.message.bytes",
        doc="Largest size of a batch's records once decompressed; the broker's own limit applies "
        "as well.",
    )
    max_message_bytes: Int = _default_of(
        "message.max.bytes",
        doc="Largest batch as stored; larger ones are refused with MESSAGE_TOO_LARGE.",
    )
    message_timestamp_after_max_ms: Long = _default_of(
        "log.message.timestamp.after.max.ms",
        doc="How far a record's timestamp may lie in the future.",
    )
    message_timestamp_before_max_ms: Long = _default_of(
        "log.message.timestamp.before.max.ms",
        doc="How far a record's timestamp may lie in the past.",
    )
    message_timestamp_type: String = _default_of(
        "log.message.timestamp.type",
        doc="Whether records keep the producer's timestamp or get the time of arrival.",
    )
    min_cleanable_dirty_ratio: Double = _default_of(
        "log.cleaner.min.cleanable.ratio",
        doc="Share of a compacted log that must be new since the last compaction before the next.",
    )
    min_compaction_lag_ms: Long = _default_of(
        "log.cleaner.min.compaction.lag.ms", doc="A record younger than this is not compacted away."
    )
    min_insync_replicas: Int = _default_of(
        "min.insync.replicas",
        doc="Replicas that must have an acks=all batch; never more than the number of "
        "replicas, here one.",
    )
    preallocate: Boolean = _default_of(
        "log.preallocate",
        doc="Whether a new segment takes its full size on disk at once; it never does.",
    )
    remote_copy_lag_bytes: Long = _default_of(
        "log.remote.copy.lag.bytes",
        doc="Part of tiered storage, which is not supported.",
    )
    remote_copy_lag_ms: Long = _default_of(
        "log.remote.copy.lag.ms",
        doc="Part of tiered storage, which is not supported.",
    )
    remote_log_copy_disable: Boolean = setting(
        False, honoured=False, doc="Part of tiered storage, which is not supported."
    )
    remote_log_delete_on_disable: Boolean = setting(
        False,
        honoured=False,
        doc="Part of tiered storage, which is not supported.",
    )
    remote_storage_enable: Boolean = setting(
        False,
        honoured=False,
        doc="Tiered storage, which is not supported: true is refused as by a Kafka without it.",
    )
    retention_bytes: Long = _default_of(
        "log.retention.bytes",
        doc="Size above which the oldest segments of a partition are deleted; -1 is no limit.",
    )
    retention_ms: Long = setting(
        604_800_000,
        at_least=-1,
        falls_back_to="log.retention.ms",
        doc="Age above which segments are deleted, by their newest record; -1 is no limit.",
    )
    segment_bytes: Int = _default_of("log.segment.bytes", doc="Size at which a new segment starts.")
    segment_index_bytes: Int = _default_of(
        "log.index.size.max.bytes",
        doc="Largest size of a segment's offset index; a full index starts a new segment.",
    )
    segment_jitter_ms: Long = setting(
        0,
        at_least=0,
        falls_back_to="log.roll.jitter.ms",
        honoured=False,
        doc="Random amount to subtract from segment.ms, so that not all partitions roll "
        "together. Here each partition rolls at its next append after segment.ms.",
    )
    segment_ms: Long = setting(
        604_800_000,
        at_least=1,
        falls_back_to="log.roll.ms",
        doc="Age at which a new segment starts even if the old one is not full.",
    )
    unclean_leader_election_enable: Boolean = _default_of(
        "unclean.leader.election.enable",
        doc="Whether a replica that is behind may lead; with one replica there is no election.",
    )
    internal_segment_bytes: Int | None = setting(
        None,
        internal=True,
        doc="Replaces segment.bytes without its lower bound. For tests only.",
    )

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
    """Return the value that a topic config has without an override."""
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
        **{TOPIC_SETTINGS[name].attribute: value for name, value in values.items()}  # type: ignore[arg-type]
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
