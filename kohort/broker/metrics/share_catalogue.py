"""The metrics of share groups; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import Section

SECTION: Final = Section(
    "Share groups",
    "Records that share groups (KIP-932) deliver and acknowledge. Series by group are limited by "
    "`kohort.metrics.groups.max`. Members and states are under Group coordinator.",
)
ACKNOWLEDGEMENTS = SECTION.counter(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "Acknowledged records: gap, accept, release, reject, renew.",
    "acktype",
)
LOCK_TIMEOUTS = SECTION.counter(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
    "Records whose acquisition lock timed out.",
)
IN_FLIGHT = SECTION.gauge(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "In-flight records, from the start offset to the last acquired one.",
)
DEAD_LETTERS = SECTION.counter(
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
    "Appended dead letters.",
    "group",
)
DEAD_LETTER_BATCHES = SECTION.counter(
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
    "Batches of dead letters.",
    "group",
)
DEAD_LETTER_BATCHES_FAILED = SECTION.counter(
    "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
    "Batches that were not appended.",
    "group",
)
SESSIONS = SECTION.gauge("kafka_server_sharesessioncache_sharesessionscount", "Share sessions.")
SESSION_PARTITIONS = SECTION.gauge(
    "kafka_server_sharesessioncache_sharepartitionscount",
    "Share-partitions of all share sessions.",
)
PARTITIONS = SECTION.gauge("kohort_share_partitions", "Initialized share-partitions.")
DELIVERIES = SECTION.counter(
    "kohort_sharegroup_deliveries_total", "Records delivered to members.", "sharegroup"
)
REDELIVERIES = SECTION.counter(
    "kohort_sharegroup_redeliveries_total",
    "Deliveries after the first one of a record.",
    "sharegroup",
)
GROUP_ACKNOWLEDGEMENTS = SECTION.counter(
    "kohort_sharegroup_acknowledgements_total",
    "Acknowledged records of the group.",
    "sharegroup",
    "acktype",
)
GROUP_LOCK_TIMEOUTS = SECTION.counter(
    "kohort_sharegroup_lock_timeouts_total",
    "Records of the group whose acquisition lock timed out.",
    "sharegroup",
)
GROUP_ARCHIVED_AT_LIMIT = SECTION.counter(
    "kohort_sharegroup_archived_at_limit_total",
    "Records whose last delivery (`group.share.delivery.count.limit`) was not accepted.",
    "sharegroup",
)
OLDEST_LOCK = SECTION.gauge(
    "kohort_sharegroup_oldest_lock_seconds",
    "Age of the group's oldest acquisition lock; 0 without one.",
    "sharegroup",
)
LAG = SECTION.gauge(
    "kohort_sharegroup_lag",
    "Records up to the high watermarks that the group has not finished.",
    "sharegroup",
)
