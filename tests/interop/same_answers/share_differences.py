"""Where share groups of this broker behave otherwise than Kafka's on purpose, each with its reason.

See `differences.py`, which has those of other requests.
"""

from typing import Final

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.interop.same_answers.deliberate import ANY, TEXT, Difference, Later

NONE: Final = int(ErrorCode.NONE)
INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
INVALID_RECORD_STATE: Final = int(ErrorCode.INVALID_RECORD_STATE)
SHARE_SESSION_NOT_FOUND: Final = int(ErrorCode.SHARE_SESSION_NOT_FOUND)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

# Share groups.
INITIALIZED_AT_ONCE: Final = Difference(
    "a member of a share group gets its partitions when it joins; Kafka initializes them "
    "afterwards, and assigns them in another epoch, with a later heartbeat",
    [("assignment.topic_partitions", [], ANY)],
)
CHOSEN_PARTITIONS: Final = Difference(
    "share groups assign partitions in the order of member ids; Kafka, in that of a hash table",
    [("assignment.topic_partitions.partitions", ANY, ANY)],
    by_chance=True,
)
LOADED_BY_ACKNOWLEDGEMENT: Final = Difference(
    "an acknowledgement loads its share-partition; Kafka refuses it until the partition is fetched",
    [
        ("error_code", UNKNOWN_TOPIC_OR_PARTITION, INVALID_RECORD_STATE),
        ("error_code", UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_SERVER_ERROR),
    ],
)
BEYOND_AN_EMPTY_WINDOW: Final = Difference(
    "an acknowledgement that reaches beyond an empty window is INVALID_RECORD_STATE; in Kafka, "
    "the whole request is UNKNOWN_SERVER_ERROR",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, NONE),
        ("acquisition_lock_timeout_ms", 0, ANY),
        ("responses", [], ANY),
    ],
)
ACKNOWLEDGED_TWICE: Final = Difference(
    "acknowledgements of a partition that a request names twice are all applied; Kafka applies "
    "the last ones only",
    [
        ("error_code", INVALID_RECORD_STATE, NONE),
        ("error_message", TEXT, None),
    ],
)
DELETED_WITHIN_A_BATCH: Final = Difference(
    "deleted records are not delivered, even if others of their batch are; Kafka delivers the "
    "whole batch",
    [("acquired_records.first_offset", 5, 7)],
)
LIVE_OFFSETS: Final = Difference(
    "the described start offset and lag are live, and never below the log start; Kafka describes "
    "stored ones: none at first, then those before the last change",
    [("start_offset", ANY, ANY), ("lag", ANY, ANY)],
)
NEGATIVE_OFFSET: Final = Difference(
    "a start offset below -1 is INVALID_REQUEST; Kafka stores it",
    [("error_code", NONE, INVALID_REQUEST)],
)
CLAMPED_OFFSET: Final = Difference(
    "an altered start offset is moved into the log; Kafka stores it as it is",
    [("start_offset", 99, 10), ("lag", ANY, 0)],
)
NAMED_TWICE: Final = Difference(
    "a partition that a request names twice counts once; in Kafka, the whole request is "
    "UNKNOWN_SERVER_ERROR if the partition is new",
    [
        ("error_code", UNKNOWN_SERVER_ERROR, ANY),
        ("acquisition_lock_timeout_ms", 0, ANY),
        ("responses", [], ANY),
    ],
)
HIDDEN_TOPIC_ID: Final = Difference(
    "the id of a topic that the client may not read is not sent",
    [("responses.topic_id", ANY, ZERO_UUID)],
)
RELEASE_WAKES: Final = Later(
    "a release wakes fetches that wait; in Kafka they wait for their maximum time",
    1.5,
)
SESSIONS_OF_A_CONNECTION: Final = Difference(
    "a connection ends all its share sessions; in Kafka, the last one only",
    [
        ("error_code", NONE, SHARE_SESSION_NOT_FOUND),
        ("acquisition_lock_timeout_ms", ANY, 0),
        ("responses", ANY, []),
    ],
)
ENDED_WHILE_WAITING: Final = Difference(
    "a waiting fetch whose session ends is answered at once, and acquires nothing; in Kafka it "
    "waits on, and locks for nobody what it acquires",
    [("responses", ANY, [])],
    by_chance=True,
)
FINISHED_BEHIND_START: Final = Difference(
    "the start offset passes deleted and aborted records and finished ones behind them; in Kafka "
    "it sometimes stays, and a repeated acknowledgement is refused",
    [
        ("error_code", INVALID_RECORD_STATE, NONE),
        ("error_message", TEXT, None),
    ],
    by_chance=True,
)
READ_BELOW_LOG_START: Final = Difference(
    "a fetch whose next record is below the log start returns those above; in Kafka it returns "
    "nothing, and the next fetch returns those",
    [("responses", [], ANY)],
    by_chance=True,
)
UNKNOWN_ACQUIRE_MODE: Final = Difference(
    "an unknown acquire mode is INVALID_REQUEST, in Kafka UNKNOWN_SERVER_ERROR",
    [("error_code", UNKNOWN_SERVER_ERROR, INVALID_REQUEST)],
)
CHECKED_DEAD_LETTER_TOPIC: Final = Difference(
    "the name of a dead-letter topic is checked; Kafka does it later",
    [
        ("responses.error_code", NONE, int(ErrorCode.INVALID_CONFIG)),
        ("responses.error_message", ANY, TEXT),
    ],
)
