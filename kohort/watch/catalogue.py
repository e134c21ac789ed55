"""The metrics of ``kohort watch``: broker metrics that a client can compute, and some of its own.

All have the label `cluster`.
"""

from typing import Final

from kohort.broker.metrics.catalogue import Section, metric

CLUSTER: Final = "cluster"

OF_BROKER: Final = (
    "kafka_consumergroup_members",
    "kohort_consumergroup_state",
    "kohort_consumergroup_epoch",
    "kohort_consumergroup_assignment_epoch",
    "kohort_consumergroup_members_reconciling",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_current_offset_sum",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_sum",
    "kohort_rebalances_started_total",
    "kohort_rebalances_avoided_total",
    "kohort_rebalance_phase_seconds",
    "kohort_rebalance_partitions_moved_total",
    "kohort_group_members_removed_total",
    "kohort_rebalances_running",
    "kafka_consumergroup_rebalances_total",
    "kohort_consumergroup_rebalances_avoided_total",
    "kohort_consumergroup_partitions_moved_total",
    "kohort_consumergroup_members_removed_total",
    "kohort_consumergroup_epoch_bumps_total",
    "kohort_consumergroup_rebalance_waiting_since_seconds",
    "kohort_rebalance_history_records",
    "kohort_rebalance_history_memory_bytes",
    "kohort_build_info",
    "kohort_metrics_folded",
    "kohort_scrape_seconds",
)

LAG: Final = metric(
    "kohort_watch_lag_records: Records of __consumer_offsets that are not read yet."
)
UNCLEAR: Final = metric(
    "kohort_watch_unclear_total: Rebalances whose cause is unclear; "
    "kohort_rebalances_started_total has the likeliest one."
)

SECTION: Final = Section(
    "kohort watch",
    f"[`kohort watch`](watch.md) serves the metrics below, with the label `{CLUSTER}` (the id of "
    "the watched cluster), and with the same label these of the metrics above: "
    + ", ".join(f"`{name}`" for name in OF_BROKER)
    + ". Counters do not include the past that the watcher reads at its start. The limits are the "
    "defaults of the settings above.",
    [LAG, UNCLEAR],
)

NAMES: Final = frozenset({*OF_BROKER, LAG.name, UNCLEAR.name})
