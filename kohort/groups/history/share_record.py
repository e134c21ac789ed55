"""The record of a share group's assignment, and the sentence that describes it."""

from collections.abc import Iterator, Sequence

from kohort.formats.text import counted
from kohort.groups.events import MemberRef, TriggerKind
from kohort.groups.history.consumer_waits import listed_partitions
from kohort.groups.history.consumers import Partition
from kohort.groups.history.facts import AssignedFacts
from kohort.groups.history.model import AssignedRecord, MemberChange, MemberFate, MemberPartitions
from kohort.groups.history.names import MEMBERS_LISTED, cut_id
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
    listed = [_change(one.member, one.fate, one.held) for one in gone.values()]
    for member, kept_count, gained, given_up in changes:
        fate = MemberFate.NEW if member.member_id in new else MemberFate.KEPT
        listed.append(_change(member, fate, given_up, gained, kept_count))
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
        gaining_count=sum([bool(change.gained) for change in changes]),
        gained_count=sum([len(change.gained) for change in changes]),
        losing_count=sum([bool(change.given_up) for change in changes]),
        given_up_count=sum([len(change.given_up) for change in changes]),
        members=tuple(listed[:MEMBERS_LISTED]),
        members_dropped=max(len(listed) - MEMBERS_LISTED, 0),
    )


def _change(
    member: MemberRef,
    fate: MemberFate,
    given_up: Sequence[Partition],
    gained: Sequence[Partition] = (),
    kept: int = 0,
) -> MemberChange:
    return MemberChange(
        member_id=cut_id(member.member_id),
        client_id=cut_id(member.client_id),
        host=cut_id(member.client_host),
        fate=fate,
        partitions=MemberPartitions(
            known=True,
            kept=kept,
            given_up=listed_partitions(given_up),
            given_up_count=len(given_up),
            gained=listed_partitions(gained),
            gained_count=len(gained),
        ),
    )


def assigned_sentence(record: AssignedRecord, clock_text: ClockText) -> str:
    """Describe an assignment in one line, without a full stop and without the group's name."""
    epochs = f", epoch {record.previous_generation} -> {record.generation},"
    is_empty = record.members_after == 0
    cause = causes_text(
        record.trigger,
        record.further_causes,
        was_last=is_empty and record.members_before == 1,
    )
    text = f"got a new assignment at {clock_text(record.at_ms)}{epochs}"
    return "; ".join([f"{text} because {cause}", *_effects(record)])


def _effects(record: AssignedRecord) -> Iterator[str]:
    if not record.members_after:
        yield "the group is empty"
        return
    if record.gained_count:
        gained = counted(record.gained_count, "partition")
        yield f"{counted(record.gaining_count, 'member')} got {gained}"
    if record.given_up_count:
        given_up = counted(record.given_up_count, "partition")
        yield f"{counted(record.losing_count, 'member')} gave up {given_up}"
    if not record.gained_count and not record.given_up_count:
        yield "no member's partitions changed"
