"""The record of a share group's assignment: no member stops for it."""

from dataclasses import replace

from kohort.groups.events import (
    Event,
    MemberAssigned,
    MemberRef,
    MemberRemoved,
    RemovalReason,
    ShareEpochBumped,
    SharePartitionsAssigned,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.evidence import evidence
from kohort.groups.history.facts import AssignedFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import as_json, from_json, parse_text, text_steps
from kohort.groups.history.model import AssignedRecord
from kohort.groups.history.names import MemberFate
from kohort.groups.history.sentence import sentence
from kohort.groups.history.share_record import build_assigned
from kohort.groups.requests import Now
from kohort.groups.steps import at_once

AT_MS = 1_790_000_000_000
A, B, C = (MemberRef(f"{name[0]}-id", None, name, "/10.0.0.1") for name in ("ann", "bob", "cem"))


def records_of(*events: Event) -> list[AssignedRecord]:
    fold = GroupFold()
    for number, event in enumerate(events):
        fold.observe(event, Now(number, AT_MS + number))
    assert fold.open is None
    records = []
    for facts in fold.closed:
        assert isinstance(facts, AssignedFacts)
        records.append(build_assigned("jobs", facts))
    return records


def joined(member: MemberRef) -> ShareEpochBumped:
    return ShareEpochBumped(Trigger(TriggerKind.MEMBER_ADDED, member))


def test_a_member_that_joins_gets_partitions_of_another() -> None:
    first, second = records_of(
        joined(A),
        SharePartitionsAssigned(2, 1, 2, (MemberAssigned(A, 0, (("t", 0), ("t", 1)), ()),)),
        joined(B),
        SharePartitionsAssigned(
            3,
            2,
            2,
            (MemberAssigned(A, 1, (), (("t", 1),)), MemberAssigned(B, 0, (("t", 1),), ())),
        ),
    )
    assert (first.sequence, first.previous_generation, first.generation) == (1, 0, 2)
    assert (first.members_before, first.members_after) == (0, 1)
    assert (second.sequence, second.previous_generation, second.generation) == (2, 2, 3)
    assert (second.members_before, second.members_after, second.partition_count) == (1, 2, 2)
    fates = {member.member_id: member.fate for member in second.members}
    assert fates == {"a-id": MemberFate.KEPT, "b-id": MemberFate.NEW}
    assert second.members[0].partitions.given_up == ("t-1",)
    assert second.members[1].partitions.gained == ("t-1",)
    said = sentence(second)
    assert "because member b-id (client.id bob, host 10.0.0.1) joined" in said
    # Pages have the sentence of a record without its members.
    assert sentence(replace(second, members=())) == said


def test_changes_before_the_end_of_the_assignment_interval_have_one_record() -> None:
    gone = Trigger(TriggerKind.SESSION_EXPIRED, B, removed=(B.member_id,))
    (record,) = records_of(
        MemberRemoved(B, RemovalReason.SESSION_EXPIRED, held=(("t", 1),)),
        ShareEpochBumped(gone),
        joined(C),
        SharePartitionsAssigned(5, 2, 2, (MemberAssigned(C, 0, (("t", 1),), ()),)),
    )
    assert record.trigger.kind is TriggerKind.SESSION_EXPIRED
    assert [cause.kind for cause in record.further_causes] == [TriggerKind.MEMBER_ADDED]
    assert (record.members_before, record.members_after) == (2, 2)
    expired, new = record.members
    assert (expired.member_id, expired.fate) == ("b-id", MemberFate.SESSION_EXPIRED)
    assert expired.partitions.given_up == ("t-1",)
    assert (new.member_id, new.fate) == ("c-id", MemberFate.NEW)
    assert any("session expired: member b-id" in line for line in evidence(record))


def test_the_last_member_that_leaves_empties_the_group() -> None:
    left = Trigger(TriggerKind.MEMBER_LEFT, A, removed=(A.member_id,))
    (record,) = records_of(
        MemberRemoved(A, RemovalReason.LEFT, held=(("t", 0),)),
        ShareEpochBumped(left),
        SharePartitionsAssigned(4, 0, 0, ()),
    )
    assert (record.members_before, record.members_after) == (1, 0)
    assert sentence(record).endswith("was the last to leave; the group is empty")


def test_an_assignment_of_unknown_cause_is_unclear() -> None:
    (record,) = records_of(SharePartitionsAssigned(4, 1, 1, (MemberAssigned(A, 1, (), ()),)))
    assert (record.trigger.kind.value, record.trigger.certainty.value) == ("unknown", "unclear")


def test_a_record_is_the_same_after_json() -> None:
    (record,) = records_of(
        MemberRemoved(B, RemovalReason.LEFT, held=(("t", 1),)),
        joined(C),
        SharePartitionsAssigned(5, 2, 2, (MemberAssigned(C, 0, (("t", 1),), ()),)),
    )
    assert as_json(record)["kind"] == "assigned"
    assert [*as_json(record)][-1] == "members", "pages cut them off"
    assert from_json(as_json(record)) == record
    assert parse_text(at_once(text_steps(record))) == record


def test_causes_beyond_the_limit_are_counted() -> None:
    bumps = [ShareEpochBumped(Trigger(TriggerKind.TOPICS_CHANGED)) for _ in range(150)]
    (record,) = records_of(*bumps, SharePartitionsAssigned(151, 1, 1, ()))
    assert len(record.further_causes) == 100
    assert record.further_causes_dropped == 49
