"""Members of a share group join, change, leave and expire, and topics come and go: the answers, the
epochs, and the records with their order.
"""

import pytest

from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.events import SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.member_memory import MemberMemory
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.records import DurableRecord
from kohort.groups.requests import CommitRequest, DeleteOffsetsResult, TopicPartition
from kohort.groups.share.data import ShareSettings
from kohort.groups.share.records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PARTITIONS,
    TARGET,
    TARGET_EPOCH,
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareTombstone,
    StoredTopic,
)
from kohort.groups.share.requests import OffsetsResult, ShareHeartbeatRequest
from kohort.groups.steps import Steps, at_once
from kohort.groups.topics import Partition, metadata_hash
from kohort.protocol.errors import ErrorCode
from tests.support.groups.share_group import ShareGroup

INTERVAL_MS = 1_000
TYPES = {
    ShareMemberRecord: MEMBER,
    ShareEpochRecord: EPOCH,
    ShareTargetEpochRecord: TARGET_EPOCH,
    ShareTargetRecord: TARGET,
    ShareCurrentRecord: CURRENT,
    SharePartitionsRecord: PARTITIONS,
}


@pytest.fixture
def group() -> ShareGroup:
    """A group without assignment interval, and topics t and u with two partitions each."""
    group = ShareGroup(ShareSettings(assignment_interval_ms=0, max_size=2))
    group.topics.change("t", 2)
    group.topics.change("u", 2)
    return group


def types(records: tuple[DurableRecord, ...]) -> list[int]:
    """Return the types of records; those of tombstones are negative."""
    return [
        -record.record_type if isinstance(record, ShareTombstone) else TYPES[record.__class__]
        for record in records
    ]


def written(group: ShareGroup) -> list[list[int]]:
    """Return the types of the records of each append since the last call."""
    appended, group.appended = group.appended, []
    return [types(records) for records in appended]


def partitions(group: ShareGroup, name: str, *numbers: int) -> frozenset[Partition]:
    topic = group.topics.get(name)
    assert topic is not None
    return frozenset((topic.topic_id, number) for number in numbers)


def test_within_the_assignment_interval_a_member_gets_nothing(group: ShareGroup) -> None:
    group.settings = group.settings._replace(assignment_interval_ms=INTERVAL_MS)
    group.join("m1", "t")
    written(group)
    second = group.join("m2", "t", "u")
    assert (second.epoch, second.assigned) == (2, frozenset())
    assert group.membership.describe().state == "Stable"
    group.pass_time(INTERVAL_MS)
    assert written(group) == [[10, 15, 11, 14], [13, 13, 12]]
    assert group.beat("m2").assigned == partitions(group, "t", 1) | partitions(group, "u", 0, 1)


def test_a_changed_subscription_takes_effect_at_once(group: ShareGroup) -> None:
    group.settings = group.settings._replace(assignment_interval_ms=INTERVAL_MS)
    group.join("m1", "t", "u")
    written(group)
    result = group.heartbeat(ShareHeartbeatRequest("m1", 2, topic_names=("u",)))
    assert (result.epoch, result.assigned) == (2, partitions(group, "u", 0, 1))
    assert written(group) == [[10, 11, 14]]
    # The same names again: the assignment is repeated, and nothing is written.
    result = group.heartbeat(ShareHeartbeatRequest("m1", 2, topic_names=("u", "u")))
    assert result.assigned == partitions(group, "u", 0, 1)
    assert not written(group)


def test_a_rack_and_a_client_id_are_stored_without_a_new_epoch(group: ShareGroup) -> None:
    group.join("m1", "t")
    written(group)
    result = group.heartbeat(ShareHeartbeatRequest("m1", 2, rack_id="r", client_id="c"))
    assert (result.epoch, result.assigned) == (2, None)
    assert written(group) == [[10]]


def test_a_topic_that_grows_is_initialized_and_assigned_by_the_next_heartbeat(
    group: ShareGroup,
) -> None:
    group.join("m1", "t")
    written(group)
    group.change_topic("t", 1)
    assert not written(group)
    result = group.beat("m1")
    assert (result.epoch, result.assigned) == (3, partitions(group, "t", 0, 1, 2))
    assert written(group) == [[15, 11, 13, 12, 14]]
    topic_id = group.topics.by_name["t"].topic_id
    assert group.events[-1] == SharePartitionsInitialized(
        3, {topic_id: ("t", (2,))}, frozenset([topic_id])
    )


def test_a_deleted_topic_is_forgotten_at_once(group: ShareGroup) -> None:
    group.join("m1", "t", "u")
    written(group)
    gone = partitions(group, "t", 0, 1)
    group.change_topic("t", 0)
    assert written(group) == [[15]]
    event = group.events[-1]
    assert isinstance(event, SharePartitionsForgotten)
    assert set(event.partitions) == gone
    result = group.beat("m1")
    assert (result.epoch, result.assigned) == (3, partitions(group, "u", 0, 1))
    assert written(group) == [[11, 13, 12, 14]]
    # Another topic of the same name.
    group.change_topic("t", 1)
    assert group.beat("m1").assigned == partitions(group, "t", 0) | partitions(group, "u", 0, 1)
    assert written(group) == [[15, 11, 13, 12, 14]]


def test_members_leave(group: ShareGroup) -> None:
    group.join("m1", "t")
    group.join("m2", "t")
    written(group)
    # Its epoch does not matter, nor whether it knows the latest one.
    assert group.leave("m1") == HeartbeatResult(member_id="m1", epoch=-1)
    group.pass_time(0)
    assert written(group) == [[-14, -13, -10, 11], [13, 12]]
    assert group.leave("m1").error is ErrorCode.UNKNOWN_MEMBER_ID
    group.leave("m2")
    assert written(group) == [[-14, -13, -10, 11, 12]]
    state = group.state
    assert (state.metadata_hash, state.target_epoch, state.target_computed_ms) == (0, 5, 0)
    assert group.membership.describe().state == "Empty"
    # What is initialized remains so.
    assert group.join("m3", "t").epoch == 6
    assert written(group) == [[10, 11, 13, 12, 14]]


def test_a_silent_member_expires_also_after_a_restart(group: ShareGroup) -> None:
    group.join("m1", "t")
    group.join("m2", "t")
    written(group)
    group.pass_time(44_999)
    group.restart()
    group.pass_time(44_999)
    group.beat("m2")
    group.pass_time(1)
    assert group.state.members.keys() == {"m2"}
    assert written(group)[-2:] == [[-14, -13, -10, 11], [13, 12]]


def test_an_expiry_that_cannot_be_stored_is_repeated(
    group: ShareGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.join("m1", "t")
    failures = [True]
    monkeypatch.setattr(group, "append_fails", lambda: bool(failures and failures.pop()))
    group.pass_time(45_000)
    assert "m1" in group.state.members
    group.pass_time(500)
    assert "m1" not in group.state.members


def test_offsets_can_only_be_changed_without_members(group: ShareGroup) -> None:
    group.join("m1", "t")
    altered: list[int] = []

    def alter(epoch: int) -> Steps[None]:
        altered.append(epoch)
        yield

    topic = group.topics.by_name["u"]
    wanted = {topic.topic_id: StoredTopic("u", (1,))}
    at_once(group.membership.alter_offsets(wanted, alter, "ticket", group.now))
    refused = OffsetsResult(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    assert group.run() == refused
    assert not altered
    group.membership.delete_offsets([topic.topic_id], "ticket", group.now)
    assert group.run() == refused
    group.leave("m1")
    written(group)
    at_once(group.membership.alter_offsets(wanted, alter, "ticket", group.now))
    assert group.run() == OffsetsResult()
    assert written(group) == [[15]]
    assert group.membership.initialized[topic.topic_id].partitions == (1,)
    wanted = {topic.topic_id: StoredTopic("u", (0,))}
    at_once(group.membership.alter_offsets(wanted, alter, "ticket", group.now))
    assert group.run() == OffsetsResult()
    assert written(group) == [[15]]
    assert group.membership.initialized[topic.topic_id].partitions == (0, 1)
    group.membership.delete_offsets([topic.topic_id, b"?" * 16], "ticket", group.now)
    assert group.run() == OffsetsResult(missing=frozenset([b"?" * 16]))
    assert written(group) == [[15]]
    assert altered == [3, 3]
    assert group.events[-1] == SharePartitionsForgotten(((topic.topic_id, 0), (topic.topic_id, 1)))


def test_a_deleted_group_leaves_nothing(group: ShareGroup) -> None:
    group.join("m1", "t")
    group.group.delete("ticket")
    assert group.run() is ErrorCode.NON_EMPTY_GROUP
    group.leave("m1")
    written(group)
    group.group.expire_offsets(group.now)
    group.run()
    assert not written(group), "an empty share group does not expire"
    group.group.delete("ticket")
    assert group.run() is ErrorCode.NONE
    assert written(group) == [[-12, -15, -11]]
    assert not group.log
    assert any(isinstance(event, SharePartitionsForgotten) for event in group.events)


def test_members_take_memory_until_the_group_is_dropped(group: ShareGroup) -> None:
    group.account.memory = MemberMemory(bytes_max=3_000)
    assert group.join("m1", "t").error is ErrorCode.NONE
    assert group.join("m2", "t" * 3_000).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.account.count == 1
    group.group.close()
    assert (group.account.count, group.account.memory.used_bytes) == (0, 0)


def test_a_share_group_has_no_offsets(group: ShareGroup) -> None:
    group.join("m1", "t")
    commit = CommitRequest((), "m1", generation=2)
    membership = group.membership
    error = membership.validate_commit(commit, group.now, transactional=False)
    assert error is ErrorCode.GROUP_ID_NOT_FOUND
    assert membership.validate_fetch(None, -1) is ErrorCode.NONE
    group.group.delete_offsets([TopicPartition("t", 0)], "ticket")
    assert group.run() == DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)


def test_what_kafka_had_initialized_and_not_assigned_is_assigned(group: ShareGroup) -> None:
    topic = group.topics.by_name["t"]
    stored: list[DurableRecord] = [
        ShareMemberRecord("g", "m1", None, "", "", ("t",)),
        ShareEpochRecord("g", 2, at_once(metadata_hash({"t": topic}))),
        ShareTargetRecord("g", "m1", {}),
        ShareTargetEpochRecord("g", 2, 999_999),
        ShareCurrentRecord("g", "m1", 2, 0, {}),
        SharePartitionsRecord("g", {topic.topic_id: StoredTopic("t", (0, 1))}),
    ]
    group.log = {encode_key(record): (encode_value(record), ()) for record in stored}
    group.restart()
    result = group.beat("m1")
    assert (result.epoch, result.assigned) == (3, partitions(group, "t", 0, 1))
    assert written(group) == [[11, 13, 12, 14]]
