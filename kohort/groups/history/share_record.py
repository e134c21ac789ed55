"""The record of a share group's assignment, and its sentence."""

from collections.abc import Iterator

from kohort.formats.text import counted
from kohort.groups.events import MemberAssigned, TriggerKind
from kohort.groups.history.consumer_waits import listed_partitions
from kohort.groups.history.facts import Departure
from kohort.groups.history.limits import MEMBERS_LISTED, cut_id
from kohort.groups.history.model import AssignedRecord, MemberChange, MemberFate, MemberPartitions
from kohort.groups.history.names import UNKNOWN_GENERATION
from kohort.groups.history.share_facts import AssignedFacts
from kohort.groups.history.triggers import trigger_record
from kohort.groups.history.wording import ClockText, causes_text


def build_assigned(group_id: str, facts: AssignedFacts) -> AssignedRecord:
    began, *further = facts.causes
    gone = {departure.member.member_id: departure for departure in facts.departed}
    new = {
        trigger.member.member_id
        for trigger, _ in facts.causes
        if trigger.kind is TriggerKind.MEMBER_ADDED and trigger.member is not None
    }
    changes = facts.assigned.changes
    listed = [*map(_gone, gone.values()), *(_changed(member, new) for member in changes)]
    return AssignedRecord(
        group=group_id,
        sequence=facts.sequence,
        previous_generation=facts.previous_generation,
        generation=facts.assigned.epoch,
        at_ms=facts.at.wall_ms,
        trigger=trigger_record(began),
        further_causes=tuple([trigger_record(cause, began.at.ms) for cause in further]),
        further_causes_dropped=facts.causes_dropped,
        members_before=facts.assigned.member_count
        + len(gone.keys() - new)
        - len(new - gone.keys()),
        members_after=facts.assigned.member_count,
        partition_count=facts.assigned.partition_count,
        changed_count=len(changes),
        members=tuple(listed[:MEMBERS_LISTED]),
        members_dropped=max(len(listed) - MEMBERS_LISTED, 0),
    )


def _gone(departure: Departure) -> MemberChange:
    member = departure.member
    return MemberChange(
        member_id=cut_id(member.member_id),
        client_id=cut_id(member.client_id),
        host=cut_id(member.client_host),
        fate=departure.fate,
        partitions=MemberPartitions(
            known=True,
            given_up=listed_partitions(departure.held),
            given_up_count=len(departure.held),
        ),
    )


def _changed(change: MemberAssigned, new: set[str]) -> MemberChange:
    member = change.member
    return MemberChange(
        member_id=cut_id(member.member_id),
        client_id=cut_id(member.client_id),
        host=cut_id(member.client_host),
        fate=MemberFate.NEW if member.member_id in new else MemberFate.KEPT,
        partitions=MemberPartitions(
            known=True,
            kept=change.kept_count,
            given_up=listed_partitions(change.given_up),
            given_up_count=len(change.given_up),
            gained=listed_partitions(change.gained),
            gained_count=len(change.gained),
        ),
    )


def assigned_sentence(record: AssignedRecord, clock_text: ClockText) -> str:
    """Return one line, without a full stop and without the group's name."""
    before = record.previous_generation
    known = before != UNKNOWN_GENERATION
    generations = f", generation {before} -> {record.generation}," if known else ""
    is_empty = record.members_after == 0
    cause = causes_text(
        record.trigger,
        record.further_causes,
        was_last=is_empty and record.members_before == 1,
    )
    text = f"got a new assignment at {clock_text(record.at_ms)}{generations}"
    return "; ".join([f"{text} because {cause}", *_effects(record)])


def _effects(record: AssignedRecord) -> Iterator[str]:
    if not record.members_after:
        yield "the group is empty"
        return
    remaining = [one for one in record.members if one.fate in {MemberFate.KEPT, MemberFate.NEW}]
    gaining = [one.partitions.gained_count for one in remaining if one.partitions.gained_count]
    losing = [one.partitions.given_up_count for one in remaining if one.partitions.given_up_count]
    if record.members_dropped:
        yield f"the partitions of {counted(record.changed_count, 'member')} changed"
        return
    if gaining:
        yield f"{_members(gaining)} got {counted(sum(gaining), 'partition')}"
    if losing:
        yield f"{_members(losing)} gave up {counted(sum(losing), 'partition')}"
    if not gaining and not losing:
        yield "no member's partitions changed"


def _members(counts: list[int]) -> str:
    return counted(len(counts), "member")
