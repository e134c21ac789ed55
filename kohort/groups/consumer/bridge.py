"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat.

Such a member sends its subscription and owned partitions when it joins, and rejoins if a heartbeat
response asks it to. There is no leader: the broker itself answers a sync with the assignment.
"""

from collections.abc import Callable
from typing import Final

from kohort.groups.consumer import epochs, sessions
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.heartbeat import check_memory, move_on, note_return, replace
from kohort.groups.consumer.member import Member, MemberState
from kohort.groups.consumer.records import ClassicPart
from kohort.groups.consumer_protocol import encode_share, parse_subscription
from kohort.groups.effects import Schedule, TimerKey
from kohort.groups.events import TriggerKind
from kohort.groups.member_sessions import note_connection
from kohort.groups.requests import (
    CONSUMER,
    Connection,
    JoinRequest,
    JoinResult,
    Now,
    SyncRequest,
    SyncResult,
)
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, DecodeError, ErrorCode

_VERSION_BYTES: Final = 2
_NEWEST: Final = 3


class JoinRefused(Exception):  # noqa: N818 - it is an answer and not a failure of the program.
    """The join is answered with an error."""

    def __init__(self, error: ErrorCode, member_id: str, reason: str = "") -> None:
        """`reason`: for the group's history; set only for errors after which clients give up."""
        super().__init__(error)
        self.result = JoinResult(error, member_id)
        self.reason = reason


def join_steps(
    draft: Draft, request: JoinRequest, now: Now, new_member_id: Callable[[], str]
) -> Steps[JoinResult]:
    """Process a JoinGroup: it changes the member as a heartbeat would. Returns the answer, which is
    sent when the changes are durable.

    Raises:
        JoinRefused, Rejected: the join is answered with an error, and has no effect.
    """
    data = draft.data
    old = _find_sender(data, request)
    _check_protocols(data, old, request)
    if not request.member_id and request.instance_id is None and request.requires_known_id:
        raise JoinRefused(ErrorCode.MEMBER_ID_REQUIRED, new_member_id())
    try:
        # The metadata for all assignors contain the same subscription: read the first.
        topic_names, owned = parse_subscription(request.protocols[0][1], data.topics)
    except DecodeError:
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        raise JoinRefused(error, request.member_id) from None
    member_id = request.member_id or new_member_id()
    member = old or Member(member_id)
    if old is not None and old.member_id != member_id:
        member = old.rejoining(member_id)
        replace(draft, old, member)
    member = member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=topic_names,
        topic_regex="",
        classic=ClassicPart(request.session_timeout_ms, request.protocols),
        client_software=request.client_software,
    )
    check_memory(draft, old, member)
    draft.put(member)
    draft.heartbeat_of = member_id
    kind = TriggerKind.MEMBER_ADDED if request.instance_id is None else TriggerKind.STATIC_ADDED
    replaced = None if old is None or old.member_id == member_id else old
    silent_ms = None
    if replaced is not None:
        kind = TriggerKind.STATIC_REPLACED
        silent_ms = sessions.silent_ms(draft, replaced, now)
    yield from epochs.note_member_change(draft, old, member, kind, request.reason, silent_ms)
    if replaced is not None and not draft.causes:
        note_return(draft, replaced, member, request.reason, silent_ms)
    member = yield from move_on(draft, old, member, owned, now)
    draft.classic_joined = member_id
    return JoinResult(
        ErrorCode.NONE,
        member_id,
        member.epoch,
        CONSUMER,
        request.protocols[0][0],
    )


def _find_sender(data: ConsumerData, request: JoinRequest) -> Member | None:
    """Return the existing member with the join's instance id or member id; None for a new one."""
    settings = data.settings
    if not settings.allows_classic_members:
        reason = "group.consumer.migration.policy does not allow the classic protocol here"
        raise JoinRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, reason)
    member = data.members.get(request.member_id)
    holder_id = None if request.instance_id is None else data.instances.get(request.instance_id)
    if holder_id is not None and request.member_id and holder_id != request.member_id:
        raise JoinRefused(ErrorCode.FENCED_INSTANCE_ID, request.member_id)
    if holder_id is not None:
        return data.members[holder_id]
    if member is None and len(data.members) >= settings.max_size:
        reason = f"the group has {len(data.members)} members, its group.consumer.max.size is"
        reason += f" {settings.max_size}"
        raise JoinRefused(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id, reason)
    return member


def _check_protocols(data: ConsumerData, old: Member | None, request: JoinRequest) -> None:
    if request.protocol_type != CONSUMER or not request.protocols:
        raise JoinRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    names = {name for name, _ in request.protocols}
    own = 0 if old is None or old.classic is None else 1
    if not data.classic_count - own:
        return
    for name in names:
        count = data.classic_protocols[name]
        if old is not None and old.classic is not None:
            count -= any(name == offered for offered, _ in old.classic.protocols)
        if count == data.classic_count - own:
            return
    reason = "it offers no assignor that all members with the classic protocol offer"
    raise JoinRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, reason)


def heartbeat(
    data: ConsumerData,
    member_id: str,
    instance_id: str | None,
    generation: int,
    now_ms: int,
    connection: Connection | None,
) -> ErrorCode:
    """Process a Heartbeat; may be called while an append is in progress. REBALANCE_IN_PROGRESS asks
    the member to rejoin; its rebalance timeout begins with the first of these answers.
    """
    member = _find_classic(data, member_id, instance_id)
    if isinstance(member, ErrorCode):
        return member
    if generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    sessions.restart(data, member, now_ms)
    note_connection(data.sessions, member_id, connection)
    if not must_rejoin(data, member):
        return NO_ERROR
    key = TimerKey(sessions.JOIN, member_id)
    if key not in data.deadlines:
        data.deadlines[key] = now_ms + member.rebalance_timeout_ms
        data.outbox.emit(Schedule(key, data.deadlines[key]))
    return ErrorCode.REBALANCE_IN_PROGRESS


def must_rejoin(data: ConsumerData, member: Member) -> bool:
    """Whether a classic member has to rejoin to progress towards its target assignment."""
    if member.epoch < data.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = data.target(member.member_id) - member.assigned.keys()
    return all(partition not in data.owners for partition in missing)


def sync(data: ConsumerData, request: SyncRequest, now: Now) -> SyncResult:
    """Process a SyncGroup, which is answered at once with the member's current assignment."""
    member = _find_classic(data, request.member_id, request.instance_id)
    if isinstance(member, ErrorCode):
        return SyncResult(member)
    if request.generation != member.epoch:
        return SyncResult(ErrorCode.ILLEGAL_GENERATION)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in {None, CONSUMER} or request.protocol_name not in {None, name}:
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < data.target_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    sessions.cancel(data, TimerKey(sessions.SYNC, member.member_id))
    sessions.restart(data, member, now.ms)
    version = min(int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True), _NEWEST)
    return SyncResult(NO_ERROR, CONSUMER, name, encode_share(data.topics, member.assigned, version))


def note_joined(data: ConsumerData, member: Member, now: Now) -> None:
    """Start the timer of a member that has joined: it must sync within its rebalance timeout."""
    sessions.cancel(data, TimerKey(sessions.JOIN, member.member_id))
    key = TimerKey(sessions.SYNC, member.member_id)
    data.deadlines[key] = now.ms + member.rebalance_timeout_ms
    data.outbox.emit(Schedule(key, data.deadlines[key]))


def _find_classic(
    data: ConsumerData, member_id: str, instance_id: str | None
) -> Member | ErrorCode:
    if instance_id is not None:
        holder_id = data.instances.get(instance_id)
        if holder_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = data.members.get(member_id)
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member
