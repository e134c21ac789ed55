"""OffsetCommit and commits in transactions. Members in each state: see the request matrix."""

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.encoding import decode, encode_key, encode_value
from kohort.groups.events import OffsetsStored
from kohort.groups.offsets.commit import TIMESTAMP_MAX
from kohort.groups.records import OffsetRecord
from kohort.groups.requests import CommittedOffset, OffsetToCommit
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import Scenario

NONE = ErrorCode.NONE
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE
A_TOPIC_ID = bytes(range(16))


class TestAccepted:
    def test_what_is_stored_is_what_was_sent_and_when(self) -> None:
        s = Scenario()
        s.commit(OffsetToCommit("t", 3, 42, 7, "note", A_TOPIC_ID))
        assert s.group.committed("t", 3) == CommittedOffset(
            42, 7, "note", s.now.wall_ms, -1, A_TOPIC_ID
        )
        assert s.group.committed("t", 4) is None
        assert s.told(OffsetsStored)[-1].offset_count == 1

    @pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2, -(2**63), -2])
    def test_a_retention_time_beyond_the_calendar_ends_with_it(self, retention_ms: int) -> None:
        s = Scenario()
        assert s.commit_error(retention_time_ms=retention_ms) is NONE
        committed = s.group.committed("t", 0)
        assert committed is not None
        expected = min(s.now.wall_ms + retention_ms, TIMESTAMP_MAX)
        assert committed.expire_timestamp_ms == expected
        record = OffsetRecord("g", "t", 0, committed)
        assert decode(encode_key(record), encode_value(record)) == record._replace(
            committed=committed._replace(leader_epoch=-1, topic_id=bytes(16))
        )

    def test_a_simple_group_stays_without_protocol_type(self) -> None:
        s = Scenario()
        s.commit()
        assert s.classic.data.protocol_type is None
        assert s.group.describe().protocol_type is None
        assert len(s.log) == 1


class TestRefused:
    def test_if_all_texts_are_too_long_nothing_is_written(self) -> None:
        s = Scenario(GroupConfig(offset_metadata_max_units=0))
        assert s.commit_error(OffsetToCommit("t", 0, 1, metadata="1")) is TOO_LARGE
        assert not s.log


class TestDurability:
    def test_a_commit_is_neither_answered_nor_visible_before_it_is_durable(self) -> None:
        s = Scenario()
        s.commit(OffsetToCommit("t", 0, 1))
        s.hold_appends = True
        ticket = s.commit(OffsetToCommit("t", 0, 2))
        assert ticket.is_parked
        assert s.offset() == 1
        s.finish_append()
        assert ticket.answer.errors == (NONE,)
        assert s.offset() == 2

    def test_a_commit_that_cannot_be_stored_changes_nothing(self) -> None:
        s = Scenario(GroupConfig(offset_metadata_max_units=1))
        s.commit(OffsetToCommit("t", 0, 1))
        s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR
        answer = s.commit(
            OffsetToCommit("t", 0, 2), OffsetToCommit("t", 1, 2, metadata="ab")
        ).answer
        assert answer.errors == (ErrorCode.NOT_COORDINATOR, TOO_LARGE)
        assert s.offset() == 1
