"""The metrics of ``kohort watch``: those of a broker that can be known from outside, and its own.

All have the label `cluster`.
"""

from typing import Final

from kohort.broker.metrics import catalogue as broker
from kohort.broker.metrics import rebalance_catalogue as rebalances
from kohort.broker.metrics.metric_info import MetricInfo, Section

CLUSTER: Final = "cluster"

OF_BROKER: Final = (
    broker.GROUP_MEMBERS,
    broker.GROUP_STATE,
    broker.GROUP_EPOCH,
    broker.GROUP_ASSIGNMENT_EPOCH,
    broker.GROUP_RECONCILING,
    broker.GROUP_CURRENT_OFFSET,
    broker.GROUP_CURRENT_OFFSET_SUM,
    broker.GROUP_LAG,
    broker.GROUP_LAG_SUM,
    rebalances.STARTED,
    rebalances.AVOIDED,
    rebalances.PHASES,
    rebalances.PARTITIONS_MOVED,
    rebalances.MEMBERS_REMOVED,
    rebalances.RUNNING,
    rebalances.GROUP_REBALANCES,
    rebalances.GROUP_AVOIDED,
    rebalances.GROUP_MOVED,
    rebalances.GROUP_REMOVED,
    rebalances.GROUP_EPOCH_BUMPS,
    rebalances.GROUP_WAITING_SINCE,
    rebalances.HISTORY_RECORDS,
    rebalances.HISTORY_BYTES,
    broker.BUILD_INFO,
    broker.FOLDED,
    broker.SCRAPE_SECONDS,
)

SECTION: Final = Section(
    "kohort watch",
    f"[`kohort watch`](watch.md) serves the metrics below, with the label `{CLUSTER}` (the id of "
    "the watched cluster), and with the same label these of the metrics above: "
    + ", ".join(f"`{metric.name}`" for metric in OF_BROKER)
    + ". Counters do not include the past that the watcher reads at its start. The limits are the "
    "defaults of the settings above.",
)
LAG = SECTION.gauge(
    "kohort_watch_lag_records",
    "Records of __consumer_offsets that are not read yet.",
)
UNCLEAR = SECTION.counter(
    "kohort_watch_unclear_total",
    "Rebalances whose cause is unclear; kohort_rebalances_started_total has the likeliest one.",
)

METRICS: Final[dict[str, MetricInfo]] = {
    metric.name: metric for metric in (*OF_BROKER, *SECTION.metrics)
}
