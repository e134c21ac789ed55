"""Settings of the data directory, of topics, and the defaults of topic configs."""

from kohort.broker.config.settings import Settings


class TopicSettings(Settings):
    """Topics."""

    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    max_request_partition_size_limit: int


class LogSettings(Settings):
    """Logs: where they are kept, and the defaults of topic configs."""

    log_dirs: tuple[str, ...] | None
    log_dir: tuple[str, ...]
    log_segment_bytes: int
    log_roll_ms: int | None
    log_roll_hours: int
    log_roll_jitter_ms: int | None
    log_roll_jitter_hours: int
    log_retention_ms: int | None
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_cleanup_policy: tuple[str, ...]
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int | None
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_segment_delete_delay_ms: int
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    message_max_bytes: int
    max_decompressed_message_bytes: int
    min_insync_replicas: int
    log_preallocate: bool
    unclean_leader_election_enable: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    log_local_retention_ms: int
    log_local_retention_bytes: int
    log_remote_copy_lag_ms: int
    log_remote_copy_lag_bytes: int


class CleanerSettings(Settings):
    """Compaction."""

    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int


class ProducerSettings(Settings):
    """Idempotent producers."""

    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int


class TransactionSettings(Settings):
    """Transactions."""

    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transactional_id_expiration_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_segment_bytes: int
    transaction_partition_verification_enable: bool
    transaction_two_phase_commit_enable: bool
