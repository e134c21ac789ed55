"""Where this broker answers something else than Kafka on purpose, each with its reason.

A test names the difference that it expects; then the answers must differ in these fields, in this
way, and in no other.
"""

from typing import Final

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers.compare import MISSING
from tests.interop.same_answers.deliberate import ANY, SILENT, TEXT, TIME, Difference, Later

NONE: Final = int(ErrorCode.NONE)
UNKNOWN_MEMBER_ID: Final = int(ErrorCode.UNKNOWN_MEMBER_ID)
GROUP_MAX_SIZE_REACHED: Final = int(ErrorCode.GROUP_MAX_SIZE_REACHED)
INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
PRODUCER_FENCED: Final = int(ErrorCode.PRODUCER_FENCED)
INVALID_PRODUCER_ID_MAPPING: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
INVALID_REGULAR_EXPRESSION: Final = int(ErrorCode.INVALID_REGULAR_EXPRESSION)
INVALID_TOPIC_EXCEPTION: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)
CONCURRENT_TRANSACTIONS: Final = int(ErrorCode.CONCURRENT_TRANSACTIONS)
CORRUPT_MESSAGE: Final = int(ErrorCode.CORRUPT_MESSAGE)


ALWAYS: Final = (
    Difference(
        "error messages differ in their words, which clients do not parse; there are also "
        "some where Kafka sends only a code",
        [
            ("error_message", TEXT, TEXT),
            ("error_message", None, TEXT),
            ("error_message", "", TEXT),
        ],
    ),
    Difference(
        "a duplicate batch has no append time if records keep their own timestamps; "
        "clients would take it for the timestamp of each record",
        [("partition_responses.log_append_time_ms", TIME, -1)],
    ),
    Difference(
        "a producer's age counts from its last append; Kafka uses the timestamps of its "
        "records, and forgets a producer of old records while it is still sending",
        [("active_producers.last_timestamp", TIME, "<now>")],
    ),
)
"""Seen wherever there are such fields."""

# Produce.
FAILS_ALONE: Final = Difference(
    "a refused batch does not affect batches for other partitions; Kafka refuses "
    "those, too, if it notices the error while it parses the request or checks its "
    "transactions",
    [
        ("error_code", CORRUPT_MESSAGE, NONE),
        ("error_code", TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NONE),
        ("base_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("error_message", TEXT, None),
    ],
)
INVALID_BATCH: Final = Difference(
    "an invalid batch is INVALID_RECORD, in Kafka UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_RECORD),
        ("log_start_offset", -1, 0),
    ],
)
STRAY_OFFSET: Final = Difference(
    "a record with an offset outside of its batch is refused, because consumers "
    "would commit that offset; Kafka only counts the records",
    [
        ("error_code", NONE, INVALID_RECORD),
        ("base_offset", ANY, -1),
    ],
)
NULL_RECORDS: Final = Difference(
    "every request is answered; Kafka never answers this one", [("", SILENT, ANY)]
)
# Fetch.
NO_SESSIONS: Final = Difference(
    "incremental sessions save bytes in clusters of thousands of partitions and cost state for each"
    " client here; session id 0 makes clients send full requests",
    [("session_id", ANY, 0)],
)
NEGATIVE_LIMIT: Final = Difference(
    "a limit below 0 counts as 0; in Kafka it is UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, NONE),
        ("high_watermark", -1, ANY),
        ("last_stable_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("records", [], ANY),
    ],
)
UNKNOWN_PARTITION: Final = Difference(
    "aborted transactions are null unless they were requested; for a partition that "
    "does not exist, Kafka sends an empty list",
    [("aborted_transactions", [], None)],
)
NO_FOLLOWERS: Final = Difference(
    "there are no followers that could ask where their log diverges from ours",
    [
        ("error_code", OFFSET_OUT_OF_RANGE, NONE),
        ("high_watermark", -1, ANY),
        ("last_stable_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("records", [], ANY),
    ],
)


def watermark_before_the_append(end: int) -> Difference:
    """Difference of a fetch that waited at that end for one record."""
    return Difference(
        "Kafka takes the high watermark before it reads; after an append in between, "
        "its response contains records beyond its high watermark",
        [("high_watermark", end, end + 1), ("last_stable_offset", end, end + 1)],
        by_chance=True,
    )


# ListOffsets and OffsetForLeaderEpoch.
WITHOUT_TIMESTAMPS: Final = Difference(
    "if no record has a timestamp, there is no record with the largest one; Kafka "
    "answers with the first record",
    [("offset", 0, -1), ("leader_epoch", 0, -1)],
)
DELETED_RECORDS: Final = Difference(
    "a deleted record never counts as the one with the largest timestamp, even if "
    "it is still in the file",
    [("timestamp", ANY, -1), ("offset", ANY, -1), ("leader_epoch", 0, -1)],
)
NEGATIVE_EPOCH: Final = Difference(
    "no leader has an epoch below 0, so such an epoch has no end offset",
    [("leader_epoch", -2, -1), ("end_offset", 0, -1)],
)

# Metadata and DescribeTopicPartitions.
CREATED_AT_ONCE: Final = Difference(
    "a topic that is created on demand is part of the same response, which saves "
    "the client a backoff",
    [
        ("error_code", UNKNOWN_TOPIC_OR_PARTITION, NONE),
        ("topic_id", ZERO_UUID, ANY),
        ("partitions", [], ANY),
    ],
)
NEITHER_NAME_NOR_ID: Final = Difference(
    "a topic with neither name nor id fails alone; in Kafka, the whole request is "
    "UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, ANY),
        ("brokers", [], ANY),
        ("cluster_id", None, ANY),
        ("controller_id", -1, 1),
    ],
)
NAMES_AND_IDS: Final = Difference(
    "a request for topics by id and by name gets all of them; Kafka ignores the names",
    [("topics", ANY, ANY)],
)
EMPTY_NAME: Final = Difference(
    "the empty name is INVALID_TOPIC_EXCEPTION, in Kafka UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_TOPIC_EXCEPTION),
        ("topic_authorized_operations", ANY, ANY),
    ],
)

# ApiVersions.
NOT_SERVED: Final = {
    "state of share groups between brokers": {*range(83, 88)},
    "streams groups": {88, 89, 93},
    "clusters of more than one node": {64, 80, 81, 94},
}
"""Apis by what they are about; this broker does not do that (yet)."""
SERVED_APIS: Final = Difference(
    "the response lists the APIs and features that this broker has",
    [
        *((f"api_keys.{key}", ANY, MISSING) for keys in NOT_SERVED.values() for key in keys),
        *(
            (f"{features}.{name}", ANY, MISSING)
            for features in ("supported_features", "finalized_features")
            for name in (
                "eligible.leader.replicas.version",
                "kraft.version",
                "metadata.version",
                "streams.version",
            )
        ),
        ("supported_features.join.reason", MISSING, ANY),
        ("finalized_features.join.reason", MISSING, ANY),
        # A Kafka that has just started has none, and has not heard of an epoch.
        ("finalized_features", [], ANY),
        ("finalized_features_epoch", ANY, 1),
    ],
)

# Topics.
PARSED_CONFIGS: Final = Difference(
    "a new topic's configs are returned as parsed, as in DescribeConfigs; Kafka "
    "returns what was sent",
    [
        ("configs.cleanup.policy.value", "compact,compact", "compact"),
        ("configs.retention.ms.value", " 1000 ", "1000"),
    ],
)
COLLIDING_NAMES: Final = Difference(
    "two names that collide cannot be created in the same request; Kafka checks "
    "only against existing topics",
    [
        ("error_code", NONE, INVALID_REQUEST),
        ("topic_id", ANY, ZERO_UUID),
        ("num_partitions", 1, -1),
        ("replication_factor", 1, -1),
        ("configs", ANY, []),
    ],
)

# Clusters of one broker.
NO_METADATA_LOG: Final = Difference(
    "the metadata is not a log, so its end offset is 0 and nothing lags behind; its "
    "endpoint is the broker's own listener",
    [
        ("high_watermark", ANY, 0),
        ("log_end_offset", ANY, 0),
        ("leader_epoch", ANY, 1),
        ("listeners.name", "CONTROLLER", "PLAINTEXT"),
        ("listeners.CONTROLLER", ANY, ANY),
        ("listeners.port", ANY, ANY),
    ],
)

# Transactions.
NEGATIVE_MARKER_EPOCH: Final = Difference(
    "an epoch or a transaction version below 0 is INVALID_REQUEST, in Kafka UNKNOWN_SERVER_ERROR",
    [("error_code", UNKNOWN_SERVER_ERROR, INVALID_REQUEST)],
)
NO_TRANSACTIONS: Final = Difference(
    "every request is answered; Kafka never answers one without transactions", [("", SILENT, ANY)]
)
FOREIGN_TRANSACTIONAL_ID: Final = Difference(
    "the transactional id of a request must belong to its producer, because "
    "authorization depends on it; Kafka checks this only before the first batch of "
    "a transaction",
    [
        ("error_code", NONE, INVALID_PRODUCER_ID_MAPPING),
        ("base_offset", ANY, -1),
        ("log_start_offset", 0, -1),
    ],
)
NO_PRODUCER_ID: Final = Difference(
    "a transactional batch without a producer id is refused, because no marker "
    "could ever end its transaction; Kafka appends it",
    [
        ("error_code", NONE, INVALID_RECORD),
        ("base_offset", ANY, -1),
        ("log_start_offset", 0, -1),
    ],
)
UNKNOWN_ISOLATION_LEVEL: Final = Difference(
    "an unknown isolation level is INVALID_REQUEST, in Kafka UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_REQUEST),
        # Kafka fails all of a Fetch.
        ("error_code", UNKNOWN_SERVER_ERROR, NONE),
        ("aborted_transactions", [], None),
    ],
)
LISTED_ABORTED_TRANSACTIONS: Final = Difference(
    "the response lists exactly the aborted transactions within its records; Kafka "
    "searches up to the next index entry, and lists some that come later",
    [("aborted_transactions", ANY, [])],
    by_chance=True,
)
STABLE_BELOW_THE_START: Final = Difference(
    "the last stable offset is never below the log start offset; in Kafka it is, if "
    "the first records of an open transaction were deleted",
    [("last_stable_offset", 0, 1)],
)
REJECTED_BATCH: Final = Difference(
    "a refused batch neither adds its partition to a transaction nor begins one; "
    "Kafka adds the partition before it checks the batch",
    [
        ("transaction_state", "Ongoing", "Empty"),
        ("transaction_start_time_ms", "<now>", -1),
        ("topics", ANY, []),
    ],
)
LAST_EPOCH: Final = Difference(
    "a producer that missed the response with its next epoch gets it even after a "
    "restart of the broker; Kafka forgets at a restart which producer had the "
    "previous epoch",
    [
        ("error_code", PRODUCER_FENCED, NONE),
        ("producer_id", -1, ANY),
        ("producer_epoch", -1, ANY),
    ],
)
OWN_TIMER: Final = Difference(
    "a transaction is aborted by its own timer when its timeout has passed; Kafka "
    "checks all transactions periodically",
    [
        ("transaction_state", "Ongoing", "CompleteAbort"),
        ("producer_epoch", ANY, ANY),
        ("topics", ANY, []),
    ],
)
SUPERSEDED_MARKER: Final = Difference(
    "a partition whose transaction was ended by a marker of a higher epoch counts "
    "as complete; Kafka never completes the transaction, and the id's producers "
    "wait until its state is deleted",
    [
        ("error_code", CONCURRENT_TRANSACTIONS, NONE),
        ("transaction_state", "PrepareCommit", "CompleteCommit"),
        ("topics", ANY, []),
        ("producer_id", -1, ANY),
        ("producer_epoch", -1, ANY),
    ],
)

# Groups.
UNUSED_ID_OF_AN_INSTANCE: Final = Difference(
    "an assigned but unused member id with an instance id is UNKNOWN_MEMBER_ID, in Kafka "
    "UNKNOWN_SERVER_ERROR",
    [("error_code", UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID), ("member_id", "", ANY)],
)
RETURNED_UNUSED_ID: Final = Difference(
    "when an unused member id leaves, no member is lost and no partition has to "
    "move; Kafka starts a rebalance",
    [
        ("group_state", "PreparingRebalance", "Stable"),
        ("group_state", "PreparingRebalance", "CompletingRebalance"),
        ("protocol_data", "", ANY),
        ("member_metadata", b"", ANY),
    ],
)
STATIC_MEMBER_OF_A_FULL_GROUP: Final = Difference(
    "a static member that comes back does not make the group larger; Kafka refuses "
    "it if the group is full, and it loses its membership",
    [
        ("error_code", GROUP_MAX_SIZE_REACHED, NONE),
        ("generation_id", -1, ANY),
        *((field, None, ANY) for field in ("protocol_type", "protocol_name")),
        *((field, "", ANY) for field in ("protocol_name", "leader", "member_id")),
    ],
)
CLIENT_OF_THE_NEW_PROCESS: Final = Difference(
    "a static member that comes back is described with the client id and host of "
    "its new process; Kafka still shows those of the old process",
    [("client_id", "two", "other")],
)
TIED_VOTES: Final = Difference(
    "if two assignors get the same number of votes, the leader's preference "
    "decides; in Kafka, the order of a hash table does",
    [("protocol_name", "sticky", "range"), ("metadata", ANY, ANY)],
)
RESTARTED_LEADER: Final = Difference(
    "a leader that states a restart in tag 7728 keeps its assignment; Kafka ignores "
    "the tag and rebalances",
    [
        ("group_state", "PreparingRebalance", "Stable"),
        ("protocol_data", "", ANY),
        ("member_metadata", b"", ANY),
    ],
)
FORCED_REBALANCE: Final = Difference(
    "a follower can force a rebalance with a reason in tag 7728; Kafka ignores the tag",
    [
        ("group_state", "Stable", "PreparingRebalance"),
        ("protocol_data", ANY, ""),
        ("member_metadata", ANY, b""),
    ],
)
ASSIGNOR_LISTED_TWICE: Final = Difference(
    "an assignor that one member lists twice counts once; Kafka counts it for two "
    "members, finds no common assignor, and never answers",
    [("", SILENT, ANY)],
)
GROUP_WITH_AN_UNUSED_ID: Final = Difference(
    "a group with an assigned but unused member id is not deleted as empty; Kafka "
    "deletes it, and the client has to request another id",
    [
        ("error_code", ANY, NONE),
        *((field, ANY, ANY) for field in ("group_state", "generation_id", "leader", "members")),
        ("error_message", TEXT, None),
        *((field, None, ANY) for field in ("protocol_type", "protocol_name")),
    ],
)
SUPERSEDED_REQUEST: Final = Difference(
    "a waiting request is answered when the same member sends another one; Kafka never answers it",
    [("", SILENT, ANY)],
)
REMOVED_WHILE_WAITING: Final = Difference(
    "a member that is removed while it waits for its assignment gets an answer; "
    "Kafka never answers it",
    [("", SILENT, ANY)],
)


def full_initial_delay(kafka_s: float) -> Later:
    """When Kafka ends the initial delay."""
    return Later(
        "the initial delay does not end early when an unused member id expires; in Kafka it does",
        kafka_s,
    )


def refused_member(kafka_s: float) -> Later:
    """When Kafka ends the phase."""
    return Later(
        "a group does not wait for a member that it refused for its size; Kafka checks "
        "this only after the timeout",
        kafka_s,
    )


def session_of_the_new_process(kafka_s: float) -> Later:
    """When Kafka misses it."""
    return Later(
        "a static member that comes back expires after the session timeout of its new "
        "process; Kafka uses the old one's until the first heartbeat",
        kafka_s,
    )
