"""Kohort's own settings: names begin with ``kohort.``."""

from typing import Final

from kohort.broker.config.settings import Settings

AUTHENTICATIONS: Final = ("none", "basic", "bearer")


def _check_authentication(ways: tuple[str, ...]) -> None:
    if not ways or not set(ways) <= set(AUTHENTICATIONS):
        raise ValueError(f"must be a list of {', '.join(AUTHENTICATIONS)}")
    if "none" in ways and len(ways) > 1:
        raise ValueError("none cannot be combined with others")


class KohortSettings(Settings, checks={"kohort.http.authentication": _check_authentication}):
    """Settings that Kafka does not have."""

    kohort_cluster_id: str | None
    kohort_metrics_host: str
    kohort_metrics_port: int
    kohort_console_host: str
    kohort_console_port: int
    kohort_console_write: bool
    kohort_http_hosts: tuple[str, ...]
    kohort_http_authentication: tuple[str, ...]
    kohort_metrics_partitions_max: int
    kohort_metrics_groups_max: int
    kohort_metrics_group_partitions_max: int
    kohort_groups_max: int
    kohort_group_metadata_bytes_max: int
    kohort_groups_metadata_bytes_max: int
    kohort_group_consumer_heartbeats_per_second: int
    kohort_group_pending_ids_max: int
    kohort_group_inbox_max: int
    kohort_transactional_ids_max: int
    kohort_transaction_version: int
    kohort_rebalance_history_size: int
    kohort_rebalance_history_memory_bytes: int
    kohort_rebalance_history_retention_ms: int
    kohort_rebalance_history_retention_bytes: int
    kohort_frame_timeout_ms: int
    kohort_inflated_batch_bytes_max: int
    kohort_unsent_max_bytes: int
    kohort_max_partitions: int
    kohort_shutdown_timeout_ms: int
    kohort_log_level: str
    kohort_log_format: str
