"""Which members may commit and read offsets (KIP-848, KIP-1251)."""

from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.member import Member
from kohort.groups.requests import CommitRequest
from kohort.protocol.errors import NO_ERROR, ErrorCode


def validate_commit(
    data: ConsumerData, request: CommitRequest, *, transactional: bool
) -> ErrorCode:
    """Return whether the sender may commit. Members may at their epoch, and at an older one for
    partitions that they have owned since then; others only while the group is Empty. A commit does
    not restart a session.
    """
    if data.is_dead:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    epoch = request.generation
    is_outsider = not request.member_id and request.instance_id is None
    if epoch < 0 and (not data.members or (transactional and is_outsider)):
        return NO_ERROR
    member = data.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and not request.allows_epoch:
        return ErrorCode.UNSUPPORTED_VERSION
    is_older = 0 <= epoch < member.epoch
    if epoch == member.epoch or (is_older and _has_had_since(data, member, request)):
        return NO_ERROR
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _has_had_since(data: ConsumerData, member: Member, request: CommitRequest) -> bool:
    """Whether the member has owned every partition of a commit since the commit's epoch."""
    for offset in request.offsets:
        topic = data.topics.get(offset.topic)
        if topic is None:
            return False
        partition = (topic[0], offset.partition)
        assigned_at = member.assigned.get(partition, member.pending.get(partition))
        if assigned_at is None or request.generation < assigned_at:
            return False
    return True


def validate_fetch(data: ConsumerData, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Return whether the sender of an OffsetFetch may read offsets: clients without membership
    (None, -1), and members at their present epoch.
    """
    if member_id is None and member_epoch < 0:
        return NO_ERROR
    member = data.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.epoch:
        return NO_ERROR
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
