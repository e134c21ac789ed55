"""Kohort's own settings: names begin with ``kohort.``."""

from typing import Final

from kohort.broker.config.settings import Boolean, Int, List, Long, Settings, String, setting

AUTHENTICATIONS: Final = ("none", "basic", "bearer")


def _check_authentication(ways: tuple[str, ...]) -> None:
    if not ways or not set(ways) <= set(AUTHENTICATIONS):
        raise ValueError(f"must be a list of {', '.join(AUTHENTICATIONS)}")
    if "none" in ways and len(ways) > 1:
        raise ValueError("none cannot be combined with others")


class KohortSettings(Settings):
    """Settings that Kafka does not have."""

    kohort_cluster_id: String | None = setting(
        None,
        doc="Cluster id of a new data directory; unset: a random one. The broker refuses a "
        "data directory with another id.",
    )
    kohort_metrics_host: String = setting(
        "localhost", doc="Address at which /metrics is served; empty means every interface."
    )
    kohort_metrics_port: Int = setting(
        9308,
        at_least=-1,
        at_most=65_535,
        doc="Port of /metrics; 0 takes any free port, -1 turns it off. If it is not set and "
        "9308 is taken, the first free one of the next 19 ports is used and logged.",
    )
    kohort_console_host: String = setting(
        "localhost", doc="Address at which the console is served; empty means every interface."
    )
    kohort_console_port: Int = setting(
        9328,
        at_least=-1,
        at_most=65_535,
        doc="Port of the console, the broker's pages for a browser; 0 takes any free port, "
        "-1 turns it off. If it is not set and 9328 is taken, the first free one of the "
        "next 19 ports is used and logged.",
    )
    kohort_console_write: Boolean = setting(
        False,
        doc="Whether the console can set the offsets of groups, for users with READ on the "
        "group and the topics. Otherwise it is read-only.",
    )
    kohort_http_hosts: List = setting(
        (),
        doc="Additional names that requests to the HTTP ports may have in their Host "
        "header. Addresses, this machine's names, the hosts of `advertised.listeners`, "
        "names without a dot, and names ending in `.local`, `.localhost`, `.internal`, "
        "`.svc` or `.test`, which cannot be registered, are always allowed. Other names "
        "are refused, so that a web page cannot read these ports through a "
        "user's browser (DNS rebinding).",
    )
    kohort_http_authentication: List = setting(
        ("none",),
        check=_check_authentication,
        doc="How clients of the HTTP ports authenticate: `basic` (the users' passwords), "
        "`bearer` (tokens, by `listener.name.http.sasl.oauthbearer.*`) or both; their "
        "rights then decide what they see. `none` shows everything to everyone; with an "
        "authorizer and an address that other machines can reach, it has to be set.",
    )
    kohort_metrics_partitions_max: Int = setting(
        10_000,
        at_least=0,
        doc="Partitions with metrics of their own; topics beyond this limit are summed "
        'under the label value "(other)".',
    )
    kohort_metrics_groups_max: Int = setting(
        1_000,
        at_least=0,
        doc="Consumer groups with metrics of their own; groups beyond this limit are summed "
        'as "(other)".',
    )
    kohort_metrics_group_partitions_max: Int = setting(
        10_000,
        at_least=0,
        doc="Committed offsets with metrics of their own, over all groups; groups beyond "
        'this limit are summed as "(other)".',
    )
    kohort_groups_max: Int = setting(
        200_000,
        at_least=1,
        doc="Maximum number of groups; a request that would create another one gets "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_group_metadata_bytes_max: Long = setting(
        8 << 20,
        at_least=1,
        doc="Total size of the assignor metadata and names of all members of one group; a "
        "member that would exceed it gets GROUP_MAX_SIZE_REACHED. Also the maximum size of one "
        "write to `__consumer_offsets`, unless `message.max.bytes` is larger: an assignment or a "
        "commit that exceeds it gets UNKNOWN_SERVER_ERROR. The broker serves no other client "
        "during a write, which takes up to 4 ms per MiB.",
    )
    kohort_groups_metadata_bytes_max: Long = setting(
        512 << 20,
        at_least=1,
        doc="Total size of the assignor metadata, names and assignments of the members of all "
        "groups. A member that would exceed it gets GROUP_MAX_SIZE_REACHED, and so does one of "
        "more than 16 KiB that would exceed half of it; an assignment gets UNKNOWN_SERVER_ERROR.",
    )
    kohort_group_consumer_heartbeats_per_second: Int = setting(
        2_000,
        at_least=0,
        doc="Target rate of heartbeats over all consumer groups, and over all share groups, from "
        "which the broker computes the heartbeat interval of their members: between 500 ms and "
        "`group.consumer.heartbeat.interval.ms` or `group.share.heartbeat.interval.ms`. Members "
        "learn of their partitions by heartbeats, so few members get them ten times as fast as "
        "with Kafka. 0: always as in Kafka.",
    )
    kohort_group_pending_ids_max: Int = setting(
        100_000,
        at_least=1,
        doc="Member ids of one group that were assigned and are not used yet; beyond this "
        "limit the oldest is dropped, and its owner has to join again.",
    )
    kohort_group_inbox_max: Int = setting(
        100_000,
        at_least=1,
        doc="Requests of one group that may wait while earlier ones are stored; further "
        "requests get COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_transactional_ids_max: Int = setting(
        100_000,
        at_least=1,
        doc="Maximum number of transactional ids; a new one evicts the id that has been "
        "without a transaction for longest. If all have a transaction, the new one gets "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    kohort_transaction_version: Int = setting(
        2,
        at_least=0,
        at_most=2,
        doc="Level of the feature `transaction.version` that clients get. Below 2 they use "
        "the flow before KIP-890; the broker supports both.",
    )
    kohort_rebalance_history_size: Int = setting(
        100,
        at_least=1,
        at_most=100_000,
        doc="Number of rebalances, including avoided ones, that are kept in memory for each group.",
    )
    kohort_rebalance_history_memory_bytes: Long = setting(
        64 << 20,
        at_least=1 << 20,
        doc="Memory for the rebalance records of all groups; beyond it, the oldest records of "
        "deleted groups are dropped, then those of the groups whose last rebalance is oldest.",
    )
    kohort_rebalance_history_retention_ms: Long = setting(
        30 * 86_400_000,
        at_least=-1,
        doc="retention.ms of __rebalance_history when it is created; the history of a "
        "deleted group is kept for this time, too.",
    )
    kohort_rebalance_history_retention_bytes: Long = setting(
        256 << 20,
        at_least=-1,
        doc="retention.bytes of __rebalance_history when it is created.",
    )
    kohort_frame_timeout_ms: Int = setting(
        30_000,
        at_least=1,
        doc="A connection that does not complete a request within this time is closed; each "
        "MiB received extends the time.",
    )
    kohort_inflated_batch_bytes_max: Int = setting(
        64 << 20,
        at_least=1 << 20,
        doc="Decompressed size that a produced batch may have; a larger one is rejected with "
        "MESSAGE_TOO_LARGE.",
    )
    kohort_unsent_max_bytes: Long = setting(
        536_870_912,
        at_least=1,
        doc="Bytes of all responses that clients have not received yet. Beyond this limit, "
        "the connections that have been slow for longest are closed.",
    )
    kohort_max_partitions: Int = setting(
        20_000,
        at_least=1,
        doc="Maximum number of partitions of all topics, so that a client cannot fill the "
        "disk with empty directories; more are refused with INVALID_PARTITIONS.",
    )
    kohort_shutdown_timeout_ms: Int = setting(
        10_000,
        at_least=1,
        doc="How long waiting requests may take to complete when the broker stops.",
    )
    kohort_log_level: String = setting(
        "INFO",
        one_of=("DEBUG", "INFO", "WARNING", "ERROR"),
        doc="Lowest severity of the messages that are logged.",
    )
    kohort_log_format: String = setting(
        "text",
        one_of=("text", "json"),
        doc="json: each message of the broker's log is one line with a JSON object, which "
        "has time (UTC), level, logger, message, and, if there is one, exception.",
    )
