"""DeleteGroups (key 42): v1 answers before throttling; v2 flexible; v3 error text. KIP-229."""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


@request(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[String]


@struct
class DeletableGroupResult:
    group_id: String
    error_code: Int16
    error_message: String | None = field(default=None, since=3, ignorable=True)


@response(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """One outcome per group; an id given twice is answered once.

    Error codes, per group:
    - NON_EMPTY_GROUP: it has members.
    - GROUP_ID_NOT_FOUND: there is no such group.
    - INVALID_GROUP_ID: the group id cannot be used.
    - GROUP_DELETION_FAILED (v3): something else that belongs to the group could not be deleted;
      the message says what.
    - NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the
      coordinator again, or wait.
    - GROUP_AUTHORIZATION_FAILED: the principal may not delete the group.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]
