"""Converts groups between the protocols: a classic group with members becomes a consumer group when
a consumer joins, and a consumer group becomes a classic one when its last consumer leaves
(KIP-848). Each conversion is one append, after which the group's membership is replaced. Members
and offsets are kept.
"""

from collections.abc import Callable

from kohort.formats.text import duration
from kohort.groups.classic import durable
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.protocols import choose_protocol
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import Member
from kohort.groups.consumer.records import ClassicPart, EpochRecord, TargetEpochRecord, TargetRecord
from kohort.groups.consumer_protocol import encode_share, parse_assignment, parse_subscription
from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.member_sessions import Rejected
from kohort.groups.records import DurableRecord, GroupRecord, StoredMember
from kohort.groups.requests import CONSUMER, Now
from kohort.groups.topics import by_topic
from kohort.protocol.errors import DecodeError, ErrorCode


def upgrade(data: ConsumerData, classic: ClassicMembership) -> tuple[DurableRecord, ...]:
    """Take over the members of a classic group into `data`, which is new; return the records that
    make them members of a consumer group. The classic membership is not changed.

    Raises:
        Rejected: GROUP_ID_NOT_FOUND, the group cannot be upgraded.
    """
    group_id = data.group_id
    settings = data.settings
    if not settings.allows_upgrade:
        raise _refused(group_id, "online upgrade is disabled")
    if classic.data.protocol_type != CONSUMER:
        raise _refused(group_id, f"its protocol type is {classic.data.protocol_type}")
    if len(classic.roster) > settings.max_size:
        raise _refused(group_id, "it has more members than group.consumer.max.size allows")
    generation = classic.data.generation
    data.epoch = data.target_epoch = max(generation, data.epoch)
    for old in classic.roster:
        try:
            names, _ = parse_subscription(old.protocols[0][1], data.topics)
            assigned = parse_assignment(old.assignment, data.topics) - data.owners.keys()
        except DecodeError as error:
            raise _refused(group_id, f"a member's metadata cannot be read: {error}") from None
        data.put_member(
            Member(
                old.member_id,
                old.instance_id,
                client_id=old.client_id,
                client_host=old.client_host,
                rebalance_timeout_ms=old.rebalance_timeout_ms,
                topic_names=names,
                classic=ClassicPart(old.session_timeout_ms, old.protocols),
                epoch=data.epoch,
                previous_epoch=data.epoch,
                assigned=dict.fromkeys(assigned, data.epoch),
                client_software=old.client_software,
            )
        )
        data.set_target(old.member_id, assigned)
    members = list(data.members.values())
    return (
        *[member.member_record(group_id) for member in members],
        EpochRecord(group_id, data.epoch, 0),
        *[
            TargetRecord(group_id, member.member_id, by_topic(data.target(member.member_id)))
            for member in members
        ],
        TargetEpochRecord(group_id, data.target_epoch, 0),
        *[member.current_record(group_id) for member in members],
    )


def _refused(group_id: str, reason: str) -> Rejected:
    return Rejected(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_id} is not a consumer group, and cannot become one because {reason}.",
    )


def is_last_consumer_gone(draft: Draft, classic_max_size: int) -> bool:
    """Whether `draft` leaves only classic members, and these may form a classic group."""
    data = draft.data
    classic_count = data.classic_count
    for member_id, member in draft.changed_members().items():
        old = data.members.get(member_id)
        classic_count -= old is not None and old.classic is not None
        classic_count += member is not None and member.classic is not None
    return (
        0 < classic_count == draft.member_count <= classic_max_size
        and len(data.members) > data.classic_count
        and data.settings.allows_downgrade
    )


def downgrade_cause(draft: Draft) -> Trigger:
    """Return the cause of the rebalance after a downgrade: the departure of the last consumer.
    `draft.causes` must not be empty.
    """
    members = draft.data.members
    cause = draft.causes[0]
    for other in draft.causes:
        member = None if other.member is None else members.get(other.member.member_id)
        if member is not None and member.classic is None:
            cause = other
            break
    timeout = duration(cause.timeout_ms or 0)
    reason, detail = cause.reason, cause.detail
    match cause.kind:
        case TriggerKind.MEMBER_LEFT:
            how = "left"
        case TriggerKind.REMOVED_BY_ADMIN:
            how = "was removed by an administrator"
            reason = reason._replace(text=detail or None)
        case TriggerKind.SESSION_EXPIRED if detail:
            how = f"{detail} within its session timeout of {timeout}"
        case TriggerKind.SESSION_EXPIRED:
            how = f"missed its session timeout of {timeout}"
        case TriggerKind.REBALANCE_EXPIRED:
            how = f"did not give up partitions within its rebalance timeout of {timeout}"
        case _:
            how = "came back with the classic protocol"
    return cause._replace(
        kind=TriggerKind.DOWNGRADED,
        reason=reason,
        detail=how,
        silent_ms=None,
        was_connected=None,
    )


def downgraded(
    draft: Draft, new: Callable[[], ClassicMembership], now: Now
) -> tuple[ClassicMembership, GroupRecord]:
    """Return the classic membership that replaces a consumer group's, and its record. Each member's
    assignment is its target. Unless `draft.causes` is empty, the caller must start a rebalance.
    """
    data = draft.data
    members = [draft.member(member_id) for member_id in draft.members()]
    lists = [
        tuple([name for name, _ in member.classic.protocols])
        for member in members
        if member is not None and member.classic is not None
    ]
    counts: dict[tuple[str, ...], int] = {}
    for names in lists:
        counts[names] = counts.get(names, 0) + 1
    protocol = choose_protocol(counts, lists[0])
    stored: list[StoredMember] = []
    for member in members:
        assert member is not None
        assert member.classic is not None
        metadata = dict(member.classic.protocols).get(protocol or "", b"")
        stored.append(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                metadata,
                encode_share(data.topics, draft.target(member.member_id)),
            )
        )
    record = GroupRecord(
        data.group_id,
        CONSUMER,
        data.epoch,
        protocol,
        stored[0].member_id,
        now.wall_ms,
        tuple(stored),
    )
    classic = new()
    durable.apply(classic.data, record, now)
    for member in members:
        if member is not None and member.classic is not None:
            present = classic.roster.get(member.member_id)
            if present is not None:
                present.set_software(member.client_software)
                classic.roster.set_protocols(present, member.classic.protocols)
    return classic, record
