"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

v1 key type (KIP-98), throttle time; v2 answers before throttling; v3 flexible; v4 several keys at
once (KIP-699); v5 TRANSACTION_ABORTABLE (KIP-890); v6 share groups, whose key is "group:topic
id:partition" (KIP-932).
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int8, Int16, Int32, String


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """One key up to v3, a list of keys from v4."""

    key: String = field(default="", until=3)
    key_type: Int8 = field(default=0, since=1)
    """0 group, 1 transactional id, 2 share-group partition."""
    coordinator_keys: list[String] = field(default=[], since=4)


@struct
class Coordinator:
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None = field(ignorable=True)


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The broker in the outer fields up to v3, one entry per key from v4.

    Error codes:
    - COORDINATOR_NOT_AVAILABLE: the internal topic cannot serve the key yet; ask again.
    - INVALID_REQUEST: an unknown key type, or one that this version lacks.
    - INVALID_GROUP_ID: an empty or malformed key.
    """

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, until=3)
    error_message: String | None = field(default="", since=1, until=3, ignorable=True)
    node_id: Int32 = field(default=0, until=3)
    host: String = field(default="", until=3)
    port: Int32 = field(default=0, until=3)
    coordinators: list[Coordinator] = field(default=[], since=4)
