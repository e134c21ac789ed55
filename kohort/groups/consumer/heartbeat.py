"""The heartbeat (KIP-848). It creates or changes the sending member, may bump the group epoch and
cause the computation of a target, and reconciles only the sending member.
"""

from collections.abc import Callable
from typing import Final

from kohort.groups.consumer import epochs, sessions
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import Member, MemberState
from kohort.groups.consumer.reconcile import InvalidStateError, reconcile
from kohort.groups.consumer.regexes import InvalidRegexError, check_regex
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.consumer.target import is_due, target_steps
from kohort.groups.consumer.validation import Sender, find_sender
from kohort.groups.events import MemberReplaced, RebalanceAvoided, Trigger, TriggerKind
from kohort.groups.member_sessions import HeartbeatResult, Rejected, check_room
from kohort.groups.reasons import StatedReason
from kohort.groups.requests import Now
from kohort.groups.steps import LARGE, Steps
from kohort.groups.topics import Partition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason

REGEXES_MAX: Final = 100
"""Maximum number of regular expressions per group: each is matched against all topics."""

FORCING: Final = frozenset(
    {JoinReason.ENFORCED, JoinReason.UPGRADE, JoinReason.ASSIGNOR_STATE_CHANGE}
)
"""Reasons for which a member may ask for a new target although nothing has changed (KIP-568)."""


def changes_nothing(data: ConsumerData, request: HeartbeatRequest) -> Member | None:
    """Return the sender of a heartbeat that has no effect except on its session; None if the
    heartbeat may have another effect. A heartbeat without effect is answered even while an append
    is in progress.
    """
    member = data.members.get(request.member_id)
    if (
        member is not None
        and request.epoch == member.epoch == data.target_epoch == data.epoch
        and member.state is MemberState.STABLE
        and _states_nothing(member, request)
        and request.reason.decisive not in FORCING
        and data.topics.version == data.checked_version
    ):
        return member
    return None


def heartbeat_steps(
    draft: Draft, request: HeartbeatRequest, now: Now, joined_as: TriggerKind | None = None
) -> Steps[HeartbeatResult]:
    """Process a heartbeat with an epoch of at least 0: make its changes in `draft`, and return the
    answer to send once they are durable.

    Args:
        joined_as: the cause if the sender is new, UPGRADED if it converts a classic group; None to
        derive it from the instance id.

    Raises:
        Rejected: the heartbeat is answered with an error, and has no effect.
    """
    sender = find_sender(draft, request)
    old = sender.replaces or sender.member
    member = _stated(sender, request)
    if member.state is MemberState.UNKNOWN and (request.owned is None or request.owned):
        raise _invalid_state(member)
    reason = request.reason
    replaced = sender.replaces
    silent_ms = _silent_ms(draft, sender, request.member_id, now)
    if member is old:
        yield from epochs.note_topics(draft)
    else:
        _check_regex(draft, old, member)
        check_memory(draft, old, member)
        if replaced is not None:
            replace(draft, replaced, member)
        draft.put(member)
        kind = _kind(sender, request, joined_as)
        yield from epochs.note_member_change(draft, old, member, kind, reason, silent_ms)
    draft.heartbeat_of = member.member_id
    is_forced = _note_forced(draft, sender, request)
    if not draft.causes and replaced is not None:
        note_return(draft, replaced, member, reason, silent_ms)
    before = member
    member = yield from move_on(draft, old, member, request.owned, now, is_forced=is_forced)
    is_told = request.epoch == 0 or request.is_full or member.assigned != before.assigned
    return HeartbeatResult(
        member_id=member.member_id,
        epoch=member.epoch,
        heartbeat_interval_ms=draft.data.settings.heartbeat_interval_ms,
        assigned=member.assigned if is_told else None,
    )


def move_on(
    draft: Draft,
    old: Member | None,
    member: Member,
    owned: frozenset[Partition] | None,
    now: Now,
    *,
    is_forced: bool = False,
) -> Steps[Member]:
    """Compute a target if one is due, and reconcile a member with its target; return the member.

    Args:
        draft: contains `member`.
        old: the member before the request, or the one that it replaces; None if it is new.
        member: the member with the values that its request states.
        owned: the partitions that the request lists as owned; None if it has no list.
        now: the current time.
        is_forced: whether a target is computed although the assignment interval is not over.

    Raises:
        Rejected: FENCED_MEMBER_EPOCH, the member must join again.
    """
    if draft.epoch > draft.target_epoch and (is_forced or is_due(draft, now)):
        yield from target_steps(draft, now)
    has_changed = old is not None and not member.is_subscribed(old)
    if old is not None and not has_changed and member.is_reconciled(draft.target_epoch):
        return member
    target = draft.target(member.member_id)
    is_large = len(target) > LARGE
    if is_large:
        yield
    try:
        moved = reconcile(
            member,
            target,
            draft.target_epoch,
            draft.owner_of,
            _subscription(draft, member),
            owned=owned,
            subscription_changed=has_changed,
        )
    except InvalidStateError:
        raise _invalid_state(member) from None
    if moved is not member:
        if is_large:
            yield
        draft.put(moved)
    if is_large:
        yield
    return moved


def _silent_ms(draft: Draft, sender: Sender, member_id: str, now: Now) -> int | None:
    """Return how long the member that the sender replaces has sent no heartbeat; or, if the sender
    was a member until its session expired, how long the sender itself has. Otherwise None.
    """
    if sender.replaces is not None:
        return sessions.silent_ms(draft, sender.replaces, now)
    is_lost = sender.member is None and member_id not in draft.changed_members()
    lost_ms = draft.data.lost.get(member_id) if is_lost else None
    return None if lost_ms is None else max(now.ms - lost_ms, 0)


def _invalid_state(member: Member) -> Rejected:
    return Rejected(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The state of member {member.member_id} is unknown. The member must abandon all its"
        " partitions and rejoin.",
    )


def _stated(sender: Sender, request: HeartbeatRequest) -> Member:
    member = sender.member
    if member is None:
        old = sender.replaces
        member = Member(request.member_id) if old is None else old.rejoining(request.member_id)
    elif _states_nothing(member, request):
        return member
    names = request.topic_names
    regex = request.topic_regex
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms
        ),
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=member.topic_regex if regex is None else regex,
        server_assignor=request.server_assignor or member.server_assignor,
        classic=None,
        client_software=request.client_software,
    )


def _states_nothing(member: Member, request: HeartbeatRequest) -> bool:
    """Whether a heartbeat contains nothing but the member's identity."""
    return (
        request.topic_names is None
        and request.topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and member.classic is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and request.client_id == member.client_id
        and request.client_host == member.client_host
    )


def _kind(sender: Sender, request: HeartbeatRequest, joined_as: TriggerKind | None) -> TriggerKind:
    if joined_as is not None:
        return joined_as
    if sender.replaces is not None:
        return TriggerKind.STATIC_REPLACED
    return TriggerKind.MEMBER_ADDED if request.instance_id is None else TriggerKind.STATIC_ADDED


def _check_regex(draft: Draft, old: Member | None, member: Member) -> None:
    """Check a member's regular expression, unless the group uses it already."""
    regex = member.topic_regex
    if not regex or (old is not None and old.topic_regex == regex):
        return
    in_use = {known for known, count in draft.regex_subscribers().items() if count > 0}
    if regex in in_use:
        return
    if len(in_use) >= REGEXES_MAX:
        raise Rejected(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The group has its maximum number of {REGEXES_MAX} expressions.",
            f"the group has {REGEXES_MAX} regular expressions already, as many as are allowed",
        )
    try:
        check_regex(regex)
    except InvalidRegexError as error:
        text = str(error)
        raise Rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, text, text) from None


def check_memory(draft: Draft, old: Member | None, member: Member) -> None:
    """Refuse a new or larger member if all groups' members would exceed their memory limit.

    Raises:
        Rejected: GROUP_MAX_SIZE_REACHED.
    """
    more_bytes = draft.more_bytes + member.size - (0 if old is None else old.size)
    check_room(draft.data.account.memory, more_bytes)
    draft.more_bytes = more_bytes


def replace(draft: Draft, old: Member, new: Member) -> None:
    """Replace a static member by its new process. If the member id is the same, the new process's
    records overwrite those of the old one.
    """
    if old.member_id != new.member_id:
        target = draft.target(old.member_id)
        draft.remove(old.member_id)
        draft.set_target(new.member_id, target)
    draft.events.append(MemberReplaced(old.member_id, new.ref))


def note_return(
    draft: Draft, old: Member, new: Member, reason: StatedReason, silent_ms: int | None
) -> None:
    """Record that a static member has returned and no new target is needed."""
    trigger = Trigger(
        TriggerKind.STATIC_REPLACED,
        new.ref,
        reason=reason,
        detail=epochs.returned(old, new),
        silent_ms=silent_ms,
    )
    draft.events.append(RebalanceAvoided(trigger))


def _note_forced(draft: Draft, sender: Sender, request: HeartbeatRequest) -> bool:
    """Process a member's request for a new target; returns whether a target is to be computed
    although the assignment interval is not over.
    """
    member = sender.member
    if member is None or request.epoch == 0 or request.reason.decisive not in FORCING:
        return False
    trigger = Trigger(TriggerKind.FORCED_BY_REASON, member.ref, reason=request.reason)
    if draft.epoch > draft.target_epoch:
        return True
    if draft.unreconciled_count:
        detail = "while another was in progress"
        draft.events.append(RebalanceAvoided(trigger._replace(detail=detail)))
        return False
    draft.bump(trigger)
    return True


def _subscription(draft: Draft, member: Member) -> Callable[[bytes], bool]:
    names = {*member.topic_names, *draft.regex_topics(member.topic_regex)}
    name_of = draft.data.topics.name_of

    def is_subscribed(topic_id: bytes) -> bool:
        name = name_of(topic_id)
        return name is not None and name in names

    return is_subscribed
