"""Rebuilds history records that were lost because the broker stopped before writing them.

At start-up, the group's own log shows that the rebalance happened, why, and the members of the new
generation; what only the stopped process knew, such as the members that it waited for, is lost.
"""

from dataclasses import replace
from typing import Final

from kohort.groups.classic.stored_cause import StoredCause
from kohort.groups.consumer.records import TargetEpochRecord
from kohort.groups.events import TriggerKind
from kohort.groups.history.model import (
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
    TriggerRecord,
)
from kohort.groups.history.names import MEMBERS_LISTED, cut_id, cut_text
from kohort.groups.history.triggers import cut_or_none
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.reasons import ReasonSource
from kohort.groups.records import Generation, GroupRecord
from kohort.groups.requests import CONSUMER

_SOURCES: Final = {ReasonSource.TAG.value: "tag", ReasonSource.INFERRED.value: "text"}


def recovered(stored: Generation, begun: StoredCause, sequence: int) -> RebalanceRecord:
    return completed(
        RebalanceRecord(
            group=stored.group_id,
            sequence=sequence,
            previous_generation=begun.previous_generation,
            previous_state=begun.previous_state,
            initial=begun.previous_state == EMPTY,
            started_at_ms=begun.started_at_ms,
            trigger=_trigger(begun),
            outcome=RebalanceOutcome.RUNNING,
        ),
        stored,
    )


def completed(record: RebalanceRecord, stored: Generation) -> RebalanceRecord:
    """Complete the record of a rebalance in progress with the generation that it led to."""
    if isinstance(stored, TargetEpochRecord):
        return _assigned(record, stored)
    assert isinstance(stored, GroupRecord)
    took_ms = max(stored.state_timestamp_ms - record.started_at_ms, 0)
    is_empty = not stored.members
    members = record.members or tuple(
        MemberTimeline(
            member_id=cut_id(member.member_id),
            instance_id=cut_or_none(member.instance_id),
            client_id=cut_id(member.client_id),
            host=cut_id(member.client_host),
            role="leader" if member.member_id == stored.leader_id else "follower",
        )
        for member in stored.members[:MEMBERS_LISTED]
    )
    return replace(
        record,
        generation=stored.generation,
        protocol_type=stored.protocol_type,
        protocol=cut_or_none(stored.protocol_name),
        leader=cut_or_none(stored.leader_id),
        timeline=replace(
            record.timeline,
            durable_ms=None if is_empty else took_ms,
            finished_ms=took_ms,
        ),
        outcome=RebalanceOutcome.EMPTY if is_empty else RebalanceOutcome.STABLE,
        members_after=len(stored.members),
        members=members,
        members_dropped=record.members_dropped
        if record.members
        else len(stored.members) - len(members),
        recovered=True,
    )


def _assigned(record: RebalanceRecord, stored: TargetEpochRecord) -> RebalanceRecord:
    """Complete the record with its target assignment; the members that reached it are unknown."""
    took_ms = max(stored.computed_at_ms - record.started_at_ms, 0)
    bumps = stored.epoch - record.previous_generation
    is_empty = not stored.computed_at_ms
    return replace(
        record,
        generation=stored.epoch,
        group_type=GroupKind.CONSUMER.value,
        protocol_type=CONSUMER,
        further_causes_dropped=bumps - 1 - len(record.further_causes),
        timeline=replace(record.timeline, durable_ms=None if is_empty else took_ms),
        outcome=RebalanceOutcome.EMPTY if is_empty else RebalanceOutcome.UNFINISHED,
        recovered=True,
    )


def _trigger(begun: StoredCause) -> TriggerRecord:
    member_id, instance_id, client_id, host = begun.member or (None, None, None, None)
    return TriggerRecord(
        kind=TriggerKind(begun.kind),
        at_ms=begun.started_at_ms,
        member_id=cut_or_none(member_id),
        instance_id=cut_or_none(instance_id),
        client_id=cut_or_none(client_id),
        host=cut_or_none(host),
        was_leader=begun.was_leader,
        reason=begun.reason,
        reason_source=_SOURCES.get(begun.reason_source),
        reason_number=begun.reason_number or None,
        reason_text=cut_text(begun.reason_text),
    )
