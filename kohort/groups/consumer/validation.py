"""Validates ConsumerGroupHeartbeat requests, offset commits and fetches (KIP-848, KIP-1251)."""

from collections.abc import Sequence
from typing import NamedTuple

from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import LEFT_FOR_RESTART, Member
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.member_sessions import Rejected, check_names
from kohort.groups.requests import CommitRequest, is_blank
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.protocol.join_reason import JoinReason


class Sender(NamedTuple):
    member: Member | None
    """The member that sent the request; None if the sender is new."""
    replaces: Member | None = None
    """The static member that the sender replaces; it has another member id, or has left."""


def check_request(group_id: str, request: HeartbeatRequest, assignors: Sequence[str]) -> None:
    """Check the fields of a request, without the group. The request must have a `member_id`, chosen
    by the client or created by the broker.

    Args:
        assignors: the names of the assignors that members may request.

    Raises:
        Rejected: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR; see also `check_names`.
    """
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if is_blank(value):
            raise Rejected(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    problem = _epoch_problem(request)
    if problem is not None:
        raise Rejected(ErrorCode.INVALID_REQUEST, problem)
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise Rejected(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}.",
            f"it wants the assignor {assignor}, which is not in group.consumer.assignors",
        )
    check_names(request.topic_names)


def _epoch_problem(request: HeartbeatRequest) -> str | None:
    """Return why the fields of a request do not fit its epoch; None if they do."""
    epoch = request.epoch
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.owned is None or request.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if request.topic_names is None and request.topic_regex is None:
            return (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                " (re-)joining."
            )
    elif epoch == LEFT_FOR_RESTART and request.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < LEFT_FOR_RESTART:
        return f"MemberEpoch is invalid: {epoch}."
    return None


def find_sender(draft: Draft, request: HeartbeatRequest) -> Sender:
    """Return the member that sends a heartbeat with an epoch of at least 0.

    Raises:
        Rejected: the member is unknown or fenced, or the group is full.
    """
    data = draft.data
    instance_id = request.instance_id
    member = draft.member(request.member_id)
    holder_id = None if instance_id is None else draft.holder_of(instance_id)
    if member is None and holder_id is None:
        if request.epoch > 0:
            raise unknown(data, request)
        if draft.member_count >= data.settings.max_size:
            raise Rejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of"
                f" {data.settings.max_size} members.",
                f"the group has {draft.member_count} members, its group.consumer.max.size is"
                f" {data.settings.max_size}",
            )
        return Sender(None)
    if instance_id is not None and holder_id != request.member_id:
        if holder_id is None:
            if request.epoch > 0:
                raise unknown(data, request)
        elif request.epoch > 0:
            raise fenced(request, holder_id)
        else:
            holder = draft.member(holder_id)
            assert holder is not None
            return Sender(None, replaces=_released(holder, request))
    assert member is not None
    if member.epoch == LEFT_FOR_RESTART and request.epoch == 0:
        return Sender(None, replaces=member)
    _check_epoch(member, request)
    return Sender(member)


def _released(holder: Member, request: HeartbeatRequest) -> Member:
    """Return the holder of an instance id if the sender may replace it; otherwise raise Rejected.
    It may if the holder has left for a restart or is a classic member, or if the request's reason
    is a restart. A process gives that reason only in its first join, and the replaced process gets
    a fatal error, so that two processes do not replace each other for ever.
    """
    if (
        holder.epoch == LEFT_FOR_RESTART
        or holder.classic is not None
        or request.reason.decisive is JoinReason.RESTART
    ):
        return holder
    raise Rejected(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {request.member_id} with instance id {request.instance_id} cannot join the"
        f" group because the instance id is owned by {holder.member_id} member.",
        f"its static id {request.instance_id} is that of member {holder.member_id}, which has"
        " neither left nor missed its session timeout",
    )


def _check_epoch(member: Member, request: HeartbeatRequest) -> None:
    epoch = request.epoch
    if epoch > member.epoch:
        raise Rejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({epoch}) than the one known by"
            f" the group coordinator ({member.epoch}). The member must abandon all its partitions"
            " and rejoin.",
        )
    if 0 < epoch < member.epoch:
        # If the member owns only partitions that it was assigned, it repeats its heartbeat because
        # the answer was lost.
        is_repeated = epoch == member.previous_epoch and (
            request.owned is not None and all(p in member.assigned for p in request.owned)
        )
        if not is_repeated:
            raise Rejected(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a smaller member epoch ({epoch}) than the one known"
                f" by the group coordinator ({member.epoch}). The member must abandon all its"
                " partitions and rejoin.",
            )


def fenced(request: HeartbeatRequest, holder_id: str) -> Rejected:
    """Return the error for a member whose instance id belongs to another member."""
    return Rejected(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Static member {request.member_id} with instance id {request.instance_id} was fenced by"
        f" member {holder_id}.",
        f"its static id {request.instance_id} is that of member {holder_id} by now; each process"
        " needs its own group.instance.id",
    )


def unknown(data: ConsumerData, request: HeartbeatRequest) -> Rejected:
    """Return the error for an unknown member, or an unknown instance id."""
    if request.instance_id is not None:
        return Rejected(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
        )
    return Rejected(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {request.member_id} is not a member of group {data.group_id}.",
    )


def validate_commit(
    data: ConsumerData, request: CommitRequest, *, transactional: bool
) -> ErrorCode:
    """Return NONE if the sender may commit, otherwise the error. A member may commit at its epoch,
    or at an older one the partitions that it has owned since then; other clients only while the
    group is Empty, or in a transaction without a member id. A commit does not restart a session.
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
    """Return NONE if the sender of an OffsetFetch may read offsets, otherwise the error. It
    must be a member at its current epoch, or a client without membership (None, -1).
    """
    if member_id is None and member_epoch < 0:
        return NO_ERROR
    member = data.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.epoch:
        return NO_ERROR
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
