"""The heartbeat of share groups. It creates, changes or removes the member that sends it, may bump
the group epoch and compute a target, and returns the member's new assignment at once.
"""

from kohort.groups.events import RemovalReason, Trigger, TriggerKind
from kohort.groups.member_sessions import HeartbeatResult, Rejected, check_names, check_room
from kohort.groups.requests import Now, is_blank
from kohort.groups.share.data import ShareData, ShareMember
from kohort.groups.share.draft import ShareDraft
from kohort.groups.share.requests import ShareHeartbeatRequest
from kohort.groups.steps import LARGE, Steps
from kohort.groups.topics import subscription_changes
from kohort.protocol.errors import ErrorCode

LEAVING: int = -1


def check_request(group_id: str, request: ShareHeartbeatRequest) -> None:
    """Check the fields of a request, whatever the group's state. Raises Rejected: INVALID_REQUEST;
    see also `check_names`.
    """
    problem = None
    if is_blank(request.member_id):
        problem = "MemberId can't be empty."
    elif is_blank(group_id):
        problem = "GroupId can't be empty."
    elif is_blank(request.rack_id):
        problem = "RackId can't be empty."
    elif request.epoch == 0 and not request.topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.epoch < LEAVING:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Rejected(ErrorCode.INVALID_REQUEST, problem)
    check_names(request.topic_names)


def changes_nothing(data: ShareData, request: ShareHeartbeatRequest) -> ShareMember | None:
    """Return the sender of a heartbeat that has no effect except on its session; None if the
    heartbeat may have another effect. A heartbeat without effect is answered even while an append
    is in progress.
    """
    state = data.state
    member = state.members.get(request.member_id)
    if (
        member is not None
        and request.epoch == member.epoch == state.target_epoch == state.epoch
        and request.topic_names is None
        and _stated(member, request) is member
        and data.topics.version == data.checked_version
    ):
        return member
    return None


def heartbeat_steps(
    draft: ShareDraft, request: ShareHeartbeatRequest, now: Now
) -> Steps[HeartbeatResult]:
    """Process a heartbeat: make its changes in `draft`, and return the answer to send once they
    are durable.

    Raises:
        Rejected: the heartbeat is answered with an error, and has no effect.
    """
    state = draft.state
    old = _sender(draft, request)
    member = _stated(old or ShareMember(request.member_id), request)
    names_changed = old is None or member.topic_names != old.topic_names
    cause: Trigger | None = None
    if member is not old:
        more_bytes = member.size - (0 if old is None else old.size)
        check_room(draft.data.account.memory, more_bytes)
        state.members[member.member_id] = member
    if old is None:
        cause = Trigger(TriggerKind.MEMBER_ADDED, member.ref)
    elif names_changed:
        cause = Trigger(
            TriggerKind.SUBSCRIPTION_CHANGED,
            member.ref,
            old_protocols=old.topic_names,
            new_protocols=member.topic_names,
            detail=", ".join(subscription_changes(old.topic_names, member.topic_names)),
        )
    if cause is not None or draft.data.topics.version != draft.checked_version:
        yield from draft.note_topics(cause)
    draft.heartbeat_of = member.member_id
    if draft.is_due(now):
        yield from draft.target_steps(now)
    if len(state.initialized) > LARGE:
        yield
    before = member
    member = draft.reconciled(member, names_changed=names_changed)
    if member is not before:
        state.members[member.member_id] = member
    if len(state.initialized) > LARGE:
        yield
    is_told = (
        request.epoch == 0 or request.topic_names is not None or member.assigned != before.assigned
    )
    return HeartbeatResult(
        member_id=member.member_id,
        epoch=member.epoch,
        heartbeat_interval_ms=draft.data.settings.heartbeat_interval_ms,
        assigned=member.assigned if is_told else None,
    )


def leave(draft: ShareDraft, request: ShareHeartbeatRequest) -> Steps[HeartbeatResult]:
    """Process the last heartbeat of a member that leaves, whatever its epoch. Raises Rejected."""
    member = draft.state.members.get(request.member_id)
    if member is None:
        raise _unknown(draft.data, request)
    cause = Trigger(TriggerKind.MEMBER_LEFT, member.ref, removed=(member.member_id,))
    yield from draft.remove(member, RemovalReason.LEFT, cause)
    return HeartbeatResult(member_id=member.member_id, epoch=LEAVING)


def _sender(draft: ShareDraft, request: ShareHeartbeatRequest) -> ShareMember | None:
    """Return the member that sent the heartbeat; None if it is joining. Raises Rejected."""
    members = draft.state.members
    member = members.get(request.member_id)
    epoch = request.epoch
    if member is None:
        if epoch > 0:
            raise _unknown(draft.data, request)
        size_max = draft.data.settings.max_size
        if len(members) >= size_max:
            raise Rejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
                f"the group has reached its group.share.max.size of {size_max}",
            )
        return None
    if epoch > member.epoch or (0 < epoch < member.epoch and epoch != member.previous_epoch):
        is_above = epoch > member.epoch
        previous = (
            ""
            if is_above
            else (f", and it does not match the previous member epoch ({member.previous_epoch})")
        )
        raise Rejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {'greater' if is_above else 'smaller'} member epoch"
            f" ({epoch}) than the one known by the group coordinator ({member.epoch}){previous}."
            " The member must abandon all its partitions and rejoin.",
        )
    return member


def _unknown(data: ShareData, request: ShareHeartbeatRequest) -> Rejected:
    return Rejected(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {request.member_id} is not a member of group {data.group_id}.",
    )


def _stated(member: ShareMember, request: ShareHeartbeatRequest) -> ShareMember:
    """Return the member with the values that its request states; `member` itself if none
    differs.
    """
    names = request.topic_names
    stated = (
        member.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        member.topic_names if names is None else tuple(sorted(set(names))),
    )
    if stated == member[1:5]:
        return member
    return ShareMember(
        member.member_id, *stated, *member[5:8], client_software=request.client_software
    )
