"""Permission to commit offsets for a classic group: members have it, in the current generation."""

from typing import Final

from kohort.groups.classic.data import GroupData
from kohort.groups.classic.member import Member
from kohort.groups.requests import CommitRequest, Now
from kohort.groups.states import GroupState
from kohort.protocol.errors import NO_ERROR, ErrorCode

_COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE


def commit_error(
    group: GroupData, request: CommitRequest, now: Now, *, transactional: bool
) -> ErrorCode:
    """Return whether the sender may commit: NONE, or the error. Committing restarts a member's
    session.

    Args:
        transactional: TxnOffsetCommit, whose producer may not know the member id.
    """
    if request.generation < 0:
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if not request.member_id and request.instance_id is None:
            # A commit from outside: a group that has members accepts only theirs. Transactional
            # producers that send no member id (before KIP-447) are accepted.
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
    found = group.find_member_of(request.member_id, request.instance_id, request.generation)
    if isinstance(found, ErrorCode):
        return found
    return NO_ERROR if transactional else _check_phase(group, found, now)


def _check_phase(group: GroupData, member: Member, now: Now) -> ErrorCode:
    if group.state is _COMPLETING_REBALANCE:
        group.request_rejoin(member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.start_session(member, now.ms)
    return NO_ERROR
