"""Where this broker answers something else than Kafka on purpose, each with its reason.

A test names the difference that it expects; then the answers must differ in these fields, in this
way, and in no other.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers.compare import MISSING

CLOSED: Final = "closed the connection"
SILENT: Final = "did not answer"

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


class Anything:
    """Equal to every value."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "anything"


class AnyText:
    """Equal to every text that says something."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other != ""

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a text"


class AnyTime:
    """Equal to every timestamp."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other >= 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a time"


ANY: Final = Anything()
TEXT: Final = AnyText()
TIME: Final = AnyTime()


class Difference(NamedTuple):
    """One deliberate difference."""

    because: str
    fields: Sequence[tuple[str, object, object]]
    """Field, or the end of its path without indexes; Kafka's value; ours. "": the whole answer."""
    by_chance: bool = False
    """Now and then the answers are equal nevertheless, as where Kafka goes by the order of a hash
    table."""

    def allows(self, path: str, kafka: object, kohort: object) -> bool:
        """Is this what is meant to differ?"""
        plain_path = re.sub(r"\[[0-9]+\]", "", path)
        return any(
            plain_path.endswith(field)
            and (not path or field)
            and kafka == theirs
            and kohort == ours
            for field, theirs, ours in self.fields
        )


class Later(NamedTuple):
    """A deliberate difference in when something happens."""

    because: str
    kafka_s: float
    """When it happens at Kafka, in the script that shows it."""


ALWAYS: Final = (
    Difference(
        "texts are for people and nothing goes by their words, but where Kafka has one we have one;"
        " we also have some where Kafka only gives a code",
        [
            ("error_message", TEXT, TEXT),
            ("error_message", None, TEXT),
            ("error_message", "", TEXT),
        ],
    ),
    Difference(
        "a batch that was there already has no append time either where records keep their own"
        " times; clients would take it for the time of each record",
        [("partition_responses.log_append_time_ms", TIME, -1)],
    ),
    Difference(
        "a producer is as old as its last append; Kafka goes by its records' own times, and forgets"
        " who sends old records while it is still sending",
        [("active_producers.last_timestamp", TIME, "<now>")],
    ),
)
"""Seen wherever there are such fields."""

# Produce.
FAILS_ALONE: Final = Difference(
    "a batch that is refused is no reason to refuse those for other partitions, which Kafka does"
    " where it notices while it reads the request or looks for transactions in it",
    [
        ("error_code", CORRUPT_MESSAGE, NONE),
        ("error_code", TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NONE),
        ("base_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("error_message", TEXT, None),
    ],
)
UNREADABLE: Final = Difference(
    "what a producer did wrong is told as INVALID_RECORD, where Kafka stumbles over it and says"
    " that the fault is its own",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_RECORD),
        ("log_start_offset", -1, 0),
    ],
)
STRAY_OFFSET: Final = Difference(
    "a record with an offset outside of its batch is refused, as consumers would commit that"
    " offset; Kafka counts the records only",
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
    "a limit below 0 is taken as 0; Kafka stumbles over it and says that the fault is its own",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, NONE),
        ("high_watermark", -1, ANY),
        ("last_stable_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("records", [], ANY),
    ],
)
NOT_THERE: Final = Difference(
    "aborted transactions are null unless they are asked for; Kafka has none, but not null, where a"
    " partition does not exist",
    [("aborted_transactions", [], None)],
)
NO_FOLLOWERS: Final = Difference(
    "there are no followers that could ask where their log parts from ours",
    [
        ("error_code", OFFSET_OUT_OF_RANGE, NONE),
        ("high_watermark", -1, ANY),
        ("last_stable_offset", -1, ANY),
        ("log_start_offset", -1, 0),
        ("records", [], ANY),
    ],
)


def watermark_before_the_append(end: int) -> Difference:
    """Of a fetch that waited at that end for one record."""
    return Difference(
        "Kafka looks at the watermark before it reads: an append in between is in the records of"
        " an answer whose watermark does not know it yet",
        [("high_watermark", end, end + 1), ("last_stable_offset", end, end + 1)],
        by_chance=True,
    )


# ListOffsets and OffsetForLeaderEpoch.
NO_TIMES: Final = Difference(
    "where no record has a time, none has the largest; Kafka names the first record",
    [("offset", 0, -1), ("leader_epoch", 0, -1)],
)
ALL_DELETED: Final = Difference(
    "a record that was deleted does not have the largest time, though it may still be in the file",
    [("timestamp", ANY, -1), ("offset", ANY, -1), ("leader_epoch", 0, -1)],
)
BELOW_EVERY_EPOCH: Final = Difference(
    "no leader has an epoch below 0, so such an epoch has no end either",
    [("leader_epoch", -2, -1), ("end_offset", 0, -1)],
)

# Metadata and DescribeTopicPartitions.
CREATED_AT_ONCE: Final = Difference(
    "a topic that is created on demand is in the same answer, which saves the client a back-off",
    [
        ("error_code", UNKNOWN_TOPIC_OR_PARTITION, NONE),
        ("topic_id", ZERO_UUID, ANY),
        ("partitions", [], ANY),
    ],
)
NEITHER_NAME_NOR_ID: Final = Difference(
    "a question about nothing is the client's mistake; Kafka stumbles over it and fails all of the"
    " request",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, ANY),
        ("brokers", [], ANY),
        ("cluster_id", None, ANY),
        ("controller_id", -1, 1),
    ],
)
NAMES_BESIDE_IDS: Final = Difference(
    "who asks for topics by id and by name is told of all of them; Kafka leaves out the names",
    [("topics", ANY, ANY)],
)
EMPTY_NAME: Final = Difference(
    "the empty name is an illegal one like others; Kafka stumbles over it",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_TOPIC_EXCEPTION),
        ("topic_authorized_operations", ANY, ANY),
    ],
)

# ApiVersions.
NOT_SERVED: Final = {
    "delegation tokens": {38, 39, 40, 41},
    "consumer groups of KIP-848": {68, 69},
    "share groups": {*range(76, 80), *range(83, 88), 90, 91, 92},
    "streams groups": {88, 89, 93},
    "clusters of more than one node": {64, 80, 81, 94},
}
"""Apis by what they are about; this broker does not do that (yet)."""
SERVED: Final = Difference(
    "clients are told of the apis and features that there are here",
    [
        *((f"api_keys.{key}", ANY, MISSING) for keys in NOT_SERVED.values() for key in keys),
        *(
            (f"{features}.{name}", ANY, MISSING)
            for features in ("supported_features", "finalized_features")
            for name in (
                "eligible.leader.replicas.version",
                "group.version",
                "kraft.version",
                "metadata.version",
                "share.version",
                "streams.version",
            )
        ),
        ("supported_features.join.reason", MISSING, ANY),
        # A Kafka that has just started has none, and has not heard of an epoch.
        ("finalized_features", [], ANY),
        ("finalized_features_epoch", ANY, 1),
    ],
)

# Topics.
AS_UNDERSTOOD: Final = Difference(
    "a new topic's configs are told as they were understood, as in DescribeConfigs; Kafka repeats"
    " what was sent",
    [
        ("configs.cleanup.policy.value", "compact,compact", "compact"),
        ("configs.retention.ms.value", " 1000 ", "1000"),
    ],
)
COLLIDING_AT_ONCE: Final = Difference(
    "names that may not stand side by side may not be created side by side either; Kafka only looks"
    " at those that are there",
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
    "the metadata is no log, so nothing is behind its end at 0; who keeps it is reached at the"
    " broker's own listener",
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
MARKER_BELOW_ZERO: Final = Difference(
    "an epoch or a transaction version below 0 is the sender's mistake; Kafka stumbles over it and"
    " says that the fault is its own",
    [("error_code", UNKNOWN_SERVER_ERROR, INVALID_REQUEST)],
)
NO_TRANSACTIONS: Final = Difference(
    "every request is answered; Kafka never answers one about no transaction", [("", SILENT, ANY)]
)
ID_OF_ANOTHER: Final = Difference(
    "the transactional id of a request is that of its producer, as that is what it was authorized"
    " for; Kafka looks only before the first batch of a transaction",
    [
        ("error_code", NONE, INVALID_PRODUCER_ID_MAPPING),
        ("base_offset", ANY, -1),
        ("log_start_offset", 0, -1),
    ],
)
NOBODYS_TRANSACTION: Final = Difference(
    "a batch of no producer is in no transaction, and no marker would ever end it; Kafka appends"
    " it",
    [
        ("error_code", NONE, INVALID_RECORD),
        ("base_offset", ANY, -1),
        ("log_start_offset", 0, -1),
    ],
)
NO_SUCH_LEVEL: Final = Difference(
    "an isolation level that does not exist is the client's mistake; Kafka stumbles over it and"
    " says that the fault is its own",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, INVALID_REQUEST),
        # Kafka fails all of a Fetch.
        ("error_code", UNKNOWN_SERVER_ERROR, NONE),
        ("aborted_transactions", [], None),
    ],
)
EXACTLY_ABORTED: Final = Difference(
    "aborted transactions are those in the records of the answer; Kafka looks up to the next entry"
    " of an index, and names some that come later",
    [("aborted_transactions", ANY, [])],
    by_chance=True,
)
STABLE_BELOW_THE_START: Final = Difference(
    "the last stable offset is never below the first that there is; Kafka's is that of the batch"
    " where the first records of an open transaction were deleted",
    [("last_stable_offset", 0, 1)],
)
ADDED_FOR_NOTHING: Final = Difference(
    "a batch that is refused adds no partition to a transaction, and begins none; Kafka adds it"
    " before it looks",
    [
        ("transaction_state", "Ongoing", "Empty"),
        ("transaction_start_time_ms", "<now>", -1),
        ("topics", ANY, []),
    ],
)
LAST_EPOCH: Final = Difference(
    "a producer that was not told of its next epoch gets it after a restart of the broker, too;"
    " Kafka has forgotten by then whose the epoch before was",
    [
        ("error_code", PRODUCER_FENCED, NONE),
        ("producer_id", -1, ANY),
        ("producer_epoch", -1, ANY),
    ],
)
STUCK: Final = Difference(
    "a partition whose transaction was ended by a marker of a higher epoch has no more to wait for;"
    " Kafka never ends the transaction of the id, whose producers wait until its state is deleted",
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
    "an id that was handed out is not that of a static member; Kafka stumbles over it and says that"
    " the fault is its own",
    [("error_code", UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID), ("member_id", "", ANY)],
)
UNUSED_ID_GIVEN_BACK: Final = Difference(
    "no member goes when an unused id is given back, so no partition has to move; Kafka begins"
    " a rebalance",
    [
        ("group_state", "PreparingRebalance", "Stable"),
        ("group_state", "PreparingRebalance", "CompletingRebalance"),
        ("protocol_data", "", ANY),
        ("member_metadata", b"", ANY),
    ],
)
REPLACED_IN_A_FULL_GROUP: Final = Difference(
    "a static member that comes back makes the group no larger; Kafka refuses it where the group is"
    " full, and its place is lost",
    [
        ("error_code", GROUP_MAX_SIZE_REACHED, NONE),
        ("generation_id", -1, ANY),
        *((field, None, ANY) for field in ("protocol_type", "protocol_name")),
        *((field, "", ANY) for field in ("protocol_name", "leader", "member_id")),
    ],
)
CLIENT_OF_THE_NEW_PROCESS: Final = Difference(
    "a static member that comes back is shown with the client id and host of its new process; Kafka"
    " goes on showing those of the old one",
    [("client_id", "two", "other")],
)
TIE: Final = Difference(
    "with as many votes for one assignor as for another, the leader's list decides; in Kafka the"
    " order of a hash table",
    [("protocol_name", "sticky", "range"), ("metadata", ANY, ANY)],
)
RESTARTED_LEADER: Final = Difference(
    "a leader that says with tag 7728 that it has restarted keeps its assignment; Kafka skips the"
    " tag and rebalances",
    [
        ("group_state", "PreparingRebalance", "Stable"),
        ("protocol_data", "", ANY),
        ("member_metadata", b"", ANY),
    ],
)
FORCED: Final = Difference(
    "a follower that says with tag 7728 why everybody should move makes them; Kafka skips the tag",
    [
        ("group_state", "Stable", "PreparingRebalance"),
        ("protocol_data", ANY, ""),
        ("member_metadata", ANY, b""),
    ],
)
OFFERED_TWICE: Final = Difference(
    "an assignor that one member names twice counts once; Kafka counts it as that of two members,"
    " finds none that all have, and never answers",
    [("", SILENT, ANY)],
)
KEPT_FOR_ITS_ID: Final = Difference(
    "a group with an id that was handed out and not used yet is not swept away; Kafka does so, and"
    " the client that got the id has to ask for another",
    [
        ("error_code", ANY, NONE),
        *((field, ANY, ANY) for field in ("group_state", "generation_id", "leader", "members")),
        ("error_message", TEXT, None),
        *((field, None, ANY) for field in ("protocol_type", "protocol_name")),
    ],
)
SUPERSEDED: Final = Difference(
    "a request that waits is answered when the same member asks again; Kafka forgets about it",
    [("", SILENT, ANY)],
)
REMOVED_WHILE_WAITING: Final = Difference(
    "a member that waits for its assignment is told when it is removed; Kafka forgets about it",
    [("", SILENT, ANY)],
)


def not_cut_short(kafka_s: float) -> Later:
    """When Kafka ends the initial delay."""
    return Later(
        "the initial delay waits for members that come; that an id expires unused is no reason to"
        " end it early, which Kafka does",
        kafka_s,
    )


def goes_on_without_the_refused(kafka_s: float) -> Later:
    """When Kafka ends the phase."""
    return Later(
        "a member that is thrown out of a group that is too large is waited for no longer; Kafka"
        " looks at that only when the time is up",
        kafka_s,
    )


def its_own_session(kafka_s: float) -> Later:
    """When Kafka misses it."""
    return Later(
        "a static member that comes back is missed after the session timeout of its new process;"
        " Kafka takes the old one's until the first heartbeat",
        kafka_s,
    )
