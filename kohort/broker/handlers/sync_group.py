"""SyncGroup (key 14): the leader hands in the assignment, everybody gets its part.

v0-5. v3 instance id, v4 flexible, v5 protocol type and name in both directions. The rules are in
:mod:`kohort.broker.core.group.classic.sync`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from kohort.broker.core.group.requests import SyncRequest, SyncResult
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import FIELD_MAX_BYTES, Prepared, head_of, with_field
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.promise import Promise
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FLEXIBLE_SINCE: Final = 4
PROTOCOL_REQUIRED_SINCE: Final = 5

PROTOCOLS_REMEMBERED: Final = 8
"""For which the beginning of an answer is kept."""

_NO_TAGS: Final = b"\0"
"""What comes after the assignment."""


@handles(SyncGroupRequest, versions="0-5")
def sync_group(
    ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Prepared | Promise[SyncGroupResponse | Prepared]:
    """Held back until the leader has handed in the assignment and it is durable."""
    version = ctx.api_version
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= PROTOCOL_REQUIRED_SINCE and not names_protocol:
        return _respond_to_any(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    ticket = ctx.broker.groups.sync(
        request.group_id,
        SyncRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={share.member_id: share.assignment for share in request.assignments},
        ),
    )
    return ticket.then(_RESPONDERS[version])


def _respond(version: int, result: SyncResult) -> SyncGroupResponse | Prepared:
    """All members of a generation are told the same but for their assignments."""
    is_long = len(result.assignment) > FIELD_MAX_BYTES
    if result.error or is_long or version < FLEXIBLE_SINCE:
        return _respond_to_any(result)
    head = _head(version, result.protocol_type, result.protocol_name)
    return with_field(head, result.assignment, _NO_TAGS)


@lru_cache(maxsize=PROTOCOLS_REMEMBERED)
def _head(version: int, protocol_type: str | None, protocol_name: str | None) -> bytes:
    """What comes before the assignment."""
    result = SyncResult(ErrorCode.NONE, protocol_type, protocol_name)
    return head_of(codec(SyncGroupResponse, version).encode(_respond_to_any(result)), _NO_TAGS)


def _respond_to_any(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


_RESPONDERS: Final = tuple([partial(_respond, version) for version in range(6)])
"""By version. Made once, because thousands wait for their answers together."""
