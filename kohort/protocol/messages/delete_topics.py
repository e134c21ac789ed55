"""DeleteTopics (key 20): delete topics with all their records.

v1 throttle time; v2 answers before throttling; v3 TOPIC_DELETION_DISABLED (KIP-322); v4 flexible;
v5 messages, THROTTLING_QUOTA_EXCEEDED (KIP-599); v6 by id too (KIP-516). Version 0 ended with
Kafka 4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import ZERO_UUID, Int16, Int32, String, Uuid


@struct
class DeleteTopicState:
    """One topic, by name or (with a null name) by id."""

    name: String | None = field(default=None)
    topic_id: Uuid


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Topics to delete, each on its own."""

    topics: list[DeleteTopicState] = field(default=[], since=6)
    """Replaces topic_names from v6 on."""
    topic_names: list[String] = field(default=[], until=5, ignorable=True)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: String | None = field(nullable_since=6)
    """The name, None for an id that no topic has."""
    topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
    error_code: Int16
    error_message: String | None = field(default=None, since=5, ignorable=True)


@response(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One outcome per topic.

    Error codes, per topic:
    - TOPIC_DELETION_DISABLED (v3): delete.topic.enable is off; INVALID_REQUEST before.
    - INVALID_REQUEST: a topic twice, or both name and id.
    - REQUEST_TIMED_OUT: not deleted within timeout_ms; it will be.
    - UNSUPPORTED_VERSION: deletion by id in a cluster without ids.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: list[DeletableTopicResult]
