"""Settings that Kafka has not: names begin with ``kohort.``."""

from kohort.broker.config.settings import Int, List, Long, Settings, String, setting


class KohortSettings(Settings):
    """Kohort's own."""

    kohort_cluster_id: String | None = setting(
        None,
        doc="Cluster id of a new data directory; unset: a random one. A data directory that has "
        "another id is refused.",
    )
    kohort_metrics_host: String = setting(
        "localhost", doc="Address that /metrics is served at; empty for every interface."
    )
    kohort_metrics_port: Int = setting(
        9308,
        at_least=-1,
        at_most=65_535,
        doc="Port of /metrics; 0 takes any free port, -1 turns it off. Where it is not set and "
        "9308 is taken, the first free one of the 19 above it, which the log names.",
    )
    kohort_http_hosts: List = setting(
        (),
        doc="Names with a dot by which that port may be asked (the Host header), beside addresses, "
        "names of this machine, and names that nobody can own, such as `.local` and `.svc`. Others "
        "are refused, so that no web page reads it through its visitor's browser (DNS rebinding).",
    )
    kohort_metrics_partitions_max: Int = setting(
        10_000,
        at_least=0,
        doc="Partitions with metrics of their own; whole topics beyond that are summed under the "
        'label value "(other)".',
    )
    kohort_metrics_groups_max: Int = setting(
        1_000,
        at_least=0,
        doc="Consumer groups with metrics of their own; those beyond are summed likewise.",
    )
    kohort_metrics_group_partitions_max: Int = setting(
        10_000,
        at_least=0,
        doc="Committed offsets with metrics of their own, over all groups; whole groups beyond "
        "that are summed likewise.",
    )
    kohort_groups_max: Int = setting(
        200_000,
        at_least=1,
        doc="Groups that may be there at once; a request that would make one more gets "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_group_metadata_bytes_max: Long = setting(
        128 << 20,
        at_least=1,
        doc="What the members of one group may tell their assignors, all together, with the names "
        "that they chose; one who would exceed it gets GROUP_MAX_SIZE_REACHED.",
    )
    kohort_group_pending_ids_max: Int = setting(
        100_000,
        at_least=1,
        doc="Member ids of one group that were handed out and are not used yet; beyond it the "
        "oldest is forgotten, and its owner starts over.",
    )
    kohort_group_inbox_max: Int = setting(
        100_000,
        at_least=1,
        doc="Requests of one group that may wait while what came before them is stored; more get "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_transactional_ids_max: Int = setting(
        100_000,
        at_least=1,
        doc="Transactional ids that may be there at once; for one more, the one that was without a "
        "transaction for longest is forgotten. Where none is, a new one gets "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_transaction_version: Int = setting(
        2,
        at_least=0,
        at_most=2,
        doc="Level of the feature `transaction.version` that clients are told. Below 2 they use "
        "the flow from before KIP-890; the broker serves either.",
    )
    kohort_rebalance_history_size: Int = setting(
        100,
        at_least=1,
        at_most=100_000,
        doc="Rebalances, those that were avoided included, that are remembered of each group.",
    )
    kohort_rebalance_history_memory_bytes: Long = setting(
        64 << 20,
        at_least=1 << 20,
        doc="What they may take in memory over all groups; beyond it the oldest are forgotten of "
        "groups that were removed, then of those that have been quiet for longest.",
    )
    kohort_rebalance_history_retention_ms: Long = setting(
        30 * 86_400_000,
        at_least=-1,
        doc="retention.ms of __rebalance_history when it is created; so long the history of a "
        "group that was removed stays, too.",
    )
    kohort_rebalance_history_retention_bytes: Long = setting(
        256 << 20,
        at_least=-1,
        doc="retention.bytes of __rebalance_history when it is created.",
    )
    kohort_frame_timeout_ms: Int = setting(
        30_000,
        at_least=1,
        doc="A connection that began a request and does not complete it for so long is closed.",
    )
    kohort_validate_records: String = setting(
        "framing",
        one_of=("header", "framing", "full"),
        doc="How far produced batches are checked beyond header and CRC. `framing`: compressed "
        "ones inflate, the first record parses, and the lengths of all fill the batch exactly; "
        "`full`: every record parses, as in Kafka, at about ten times the cost; `header`: none. "
        "Compacted topics are always checked in full.",
    )
    kohort_inflated_batch_bytes_max: Int = setting(
        64 << 20,
        at_least=1 << 20,
        doc="What a compressed batch may inflate to when it is checked; more is refused with "
        "INVALID_RECORD.",
    )
    kohort_unsent_max_bytes: Long = setting(
        536_870_912,
        at_least=1,
        doc="Bytes of all answers that clients do not take as fast as they asked for them. Beyond "
        "it the connections that have been slow for longest are closed.",
    )
    kohort_max_partitions: Int = setting(
        20_000,
        at_least=1,
        doc="Most partitions of all topics together, so that no client can fill the disk with "
        "empty directories; more are refused with INVALID_PARTITIONS.",
    )
    kohort_shutdown_timeout_ms: Int = setting(
        10_000,
        at_least=1,
        doc="How long requests that wait may take to complete when the broker is stopped.",
    )
    kohort_log_level: String = setting(
        "INFO",
        one_of=("DEBUG", "INFO", "WARNING", "ERROR"),
        doc="Least severe messages that the broker's log shows.",
    )
    kohort_log_format: String = setting(
        "text",
        one_of=("text", "json"),
        doc="json: each message of the broker's log is a line with one object, which has time "
        "(UTC), level, logger, message, and exception if there is one.",
    )
