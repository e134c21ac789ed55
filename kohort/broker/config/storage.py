"""Settings of the data directory, of topics, and the defaults of topic configs."""

from typing import Any, TypeVar

from kohort.broker.config.settings import (
    LONG_MAX,
    Boolean,
    Double,
    Int,
    List,
    Long,
    Settings,
    String,
    setting,
)

T = TypeVar("T")


def _topic_default(topic_config: str, default: T, **declared: Any) -> T:  # noqa: ANN401 - see setting
    """Declare the default of a topic config, which can be changed while the broker runs."""
    doc = f"Default of the topic config {topic_config}."
    return setting(default, dynamic=True, doc=doc, **declared)


class TopicSettings(Settings):
    """Topics."""

    auto_create_topics_enable: Boolean = setting(
        True,
        doc="Create a topic when a client requests the metadata of one that does not exist "
        "and allows its creation.",
    )
    delete_topic_enable: Boolean = setting(
        True, doc="Whether topics can be deleted; otherwise the answer is TOPIC_DELETION_DISABLED."
    )
    num_partitions: Int = setting(
        1, at_least=1, doc="Partitions of a topic that is created without a number of partitions."
    )
    default_replication_factor: Int = setting(
        1,
        doc="Replication factor of a topic that is created without one. With one broker only 1 can "
        "be satisfied.",
    )
    max_request_partition_size_limit: Int = setting(
        2000,
        at_least=1,
        doc="Maximum number of partitions in one response to DescribeTopicPartitions.",
    )


class LogSettings(Settings):
    """Logs: where they are kept, and the defaults of topic configs."""

    log_dirs: List | None = setting(
        None,
        doc="The data directory; overrides `log.dir`. Of several directories, the first is used.",
    )
    log_dir: List = setting(
        ("data",),
        doc="The data directory, relative to the working directory. (Kafka's default, "
        "/tmp/kafka-logs, does not survive every restart of a machine.)",
    )
    log_segment_bytes: Int = _topic_default("segment.bytes", 1 << 30, at_least=1 << 20)
    log_roll_ms: Long | None = _topic_default(
        "segment.ms", None, at_least=1, falls_back_to="log.roll.hours"
    )
    log_roll_hours: Int = setting(168, at_least=1, doc="As `log.roll.ms`, in hours.")
    log_roll_jitter_ms: Long | None = _topic_default(
        "segment.jitter.ms", None, at_least=0, falls_back_to="log.roll.jitter.hours", honoured=False
    )
    log_roll_jitter_hours: Int = setting(
        0, at_least=0, honoured=False, doc="As `log.roll.jitter.ms`, in hours."
    )
    log_retention_ms: Long | None = setting(
        None,
        dynamic=True,
        falls_back_to="log.retention.minutes",
        doc="Default of the topic config retention.ms; -1 keeps records forever.",
    )
    log_retention_minutes: Int | None = setting(
        None, falls_back_to="log.retention.hours", doc="As `log.retention.ms`, in minutes."
    )
    log_retention_hours: Int = setting(168, doc="As `log.retention.ms`, in hours.")
    log_retention_bytes: Long = setting(
        -1, dynamic=True, doc="Default of the topic config retention.bytes; -1 is no limit."
    )
    log_retention_check_interval_ms: Long = setting(
        300_000, at_least=1, doc="How often logs are checked for segments to delete."
    )
    log_cleanup_policy: List = _topic_default(
        "cleanup.policy", ("delete",), one_of=("compact", "delete")
    )
    log_index_size_max_bytes: Int = _topic_default("segment.index.bytes", 10_485_760, at_least=4)
    log_index_interval_bytes: Int = _topic_default("index.interval.bytes", 4096, at_least=0)
    log_flush_interval_messages: Long = _topic_default("flush.messages", LONG_MAX, at_least=1)
    log_flush_interval_ms: Long | None = _topic_default(
        "flush.ms", None, falls_back_to="log.flush.scheduler.interval.ms"
    )
    log_flush_scheduler_interval_ms: Long = setting(
        LONG_MAX,
        doc="Same as `log.flush.interval.ms`. In Kafka it is also the interval at which "
        "logs are checked for a flush; here flush.ms alone decides.",
    )
    log_flush_offset_checkpoint_interval_ms: Int = setting(
        60_000,
        at_least=0,
        doc="How often the recovery points are written to disk. Records before a log's "
        "recovery point are not verified again after a crash.",
    )
    log_flush_start_offset_checkpoint_interval_ms: Int = setting(
        60_000, at_least=0, doc="How often the start offsets of logs are written to disk."
    )
    log_segment_delete_delay_ms: Long = _topic_default("file.delete.delay.ms", 60_000, at_least=0)
    log_message_timestamp_type: String = _topic_default(
        "message.timestamp.type", "CreateTime", one_of=("CreateTime", "LogAppendTime")
    )
    log_message_timestamp_before_max_ms: Long = _topic_default(
        "message.timestamp.before.max.ms", LONG_MAX, at_least=0
    )
    log_message_timestamp_after_max_ms: Long = _topic_default(
        "message.timestamp.after.max.ms", 3_600_000, at_least=0
    )
    message_max_bytes: Int = _topic_default("max.message.bytes", 1_048_588, at_least=0)
    max_decompressed_message_bytes: Int = _topic_default(
        "max.decompressed.message.bytes", 2_147_483_639, at_least=1, at_most=2_147_483_639
    )
    min_insync_replicas: Int = _topic_default("min.insync.replicas", 1, at_least=1)
    log_preallocate: Boolean = _topic_default("preallocate", False, honoured=False)
    unclean_leader_election_enable: Boolean = _topic_default(
        "unclean.leader.election.enable", False, honoured=False
    )
    compression_type: String = _topic_default(
        "compression.type",
        "producer",
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        honoured=False,
    )
    compression_gzip_level: Int = _topic_default(
        "compression.gzip.level", -1, at_least=1, at_most=9, or_exactly=-1, honoured=False
    )
    compression_lz4_level: Int = setting(
        9,
        at_least=1,
        at_most=17,
        dynamic=True,
        honoured=False,
        doc="Default of the topic config compression.lz4.level.",
    )
    compression_zstd_level: Int = _topic_default(
        "compression.zstd.level", 3, at_least=-131_072, at_most=22, honoured=False
    )
    log_local_retention_ms: Long = _topic_default(
        "local.retention.ms", -2, at_least=-2, honoured=False
    )
    log_local_retention_bytes: Long = _topic_default(
        "local.retention.bytes", -2, at_least=-2, honoured=False
    )
    log_remote_copy_lag_ms: Long = _topic_default(
        "remote.copy.lag.ms", 0, at_least=-1, honoured=False
    )
    log_remote_copy_lag_bytes: Long = _topic_default(
        "remote.copy.lag.bytes", -1, at_least=-1, honoured=False
    )


class CleanerSettings(Settings):
    """Compaction."""

    log_cleaner_enable: Boolean = setting(
        True,
        doc="Whether compacted topics are compacted; otherwise they grow without limit.",
    )
    log_cleaner_backoff_ms: Long = setting(
        15_000,
        at_least=0,
        dynamic=True,
        doc="How long compaction pauses when it finds nothing to do.",
    )
    log_cleaner_dedupe_buffer_size: Long = setting(
        134_217_728,
        at_least=1 << 20,
        dynamic=True,
        doc="Bytes of memory for the map of keys to offsets of one round of compaction.",
    )
    log_cleaner_min_cleanable_ratio: Double = _topic_default(
        "min.cleanable.dirty.ratio", 0.5, at_least=0, at_most=1
    )
    log_cleaner_delete_retention_ms: Long = _topic_default(
        "delete.retention.ms", 86_400_000, at_least=0
    )
    log_cleaner_min_compaction_lag_ms: Long = _topic_default("min.compaction.lag.ms", 0, at_least=0)
    log_cleaner_max_compaction_lag_ms: Long = _topic_default(
        "max.compaction.lag.ms", LONG_MAX, at_least=1
    )


class ProducerSettings(Settings):
    """Idempotent producers."""

    producer_id_expiration_ms: Int = setting(
        86_400_000,
        at_least=1,
        dynamic=True,
        doc="The state of a producer id is deleted after this time without a batch from it.",
    )
    producer_id_expiration_check_interval_ms: Int = setting(
        600_000,
        at_least=1,
        internal=True,
        doc="How often expired producer ids are looked for.",
    )


class TransactionSettings(Settings):
    """Transactions."""

    transaction_max_timeout_ms: Int = setting(
        900_000,
        at_least=1,
        doc="Longest transaction timeout that a producer may request; a longer one is "
        "refused with INVALID_TRANSACTION_TIMEOUT.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = setting(
        10_000,
        at_least=1,
        doc="A transaction is aborted when its timeout has passed; if the machine's clock "
        "has jumped, at most this much later.",
    )
    transactional_id_expiration_ms: Int = setting(
        604_800_000,
        at_least=1,
        doc="A transactional id without a transaction is deleted after this time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = setting(
        3_600_000,
        at_least=1,
        doc="How often expired transactional ids are deleted.",
    )
    transaction_state_log_num_partitions: Int = setting(
        50,
        at_least=1,
        doc="Partitions of __transaction_state when it is created; each transactional id is "
        "stored in one of them. Do not change it afterwards.",
    )
    transaction_state_log_segment_bytes: Int = setting(
        104_857_600,
        at_least=1,
        doc="segment.bytes of __transaction_state when it is created; a value below 1048576, the "
        "minimum of every topic, is raised to it.",
    )
    transaction_partition_verification_enable: Boolean = setting(
        True,
        dynamic=True,
        doc="Whether batches of the flow before KIP-890 must be for a partition that was "
        "added to the open transaction. Otherwise a delayed batch may block readers "
        "forever.",
    )
    transaction_two_phase_commit_enable: Boolean = setting(
        False,
        honoured=False,
        doc="Has no effect: two-phase commit (KIP-939) is not supported.",
    )
