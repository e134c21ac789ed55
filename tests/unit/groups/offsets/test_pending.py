"""TxnOffsetCommit in a group: who may, what is visible when, and which of several records holds."""

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.encoding import encode_value
from kohort.groups.records import OffsetTombstone, PendingOffset
from kohort.groups.requests import OffsetToCommit, TopicPartition
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import MINUTE, Scenario

NONE = ErrorCode.NONE
RETENTION = 7 * 24 * 60 * MINUTE
A, B = 7, 8
"""Two producers."""


def at(offset: int, partition: int = 0) -> OffsetToCommit:
    return OffsetToCommit("t", partition, offset)


class TestVisible:
    def test_they_look_in_the_log_as_any_other(self) -> None:
        s = Scenario()
        s.commit(at(5), producer_id=A)
        s.commit(at(5))
        pending, plain = s.log
        assert isinstance(pending, PendingOffset)
        assert (pending.producer_id, pending.producer_epoch) == (A, 0)
        assert not isinstance(plain, PendingOffset)
        assert encode_value(pending) == encode_value(plain)  # type: ignore[arg-type]


class TestSeveralTransactions:
    def test_each_request_is_a_batch_of_its_own(self) -> None:
        s = Scenario()
        tickets = []
        with s.turn():
            tickets.append(s.commit(at(1)))
            tickets.append(s.commit(at(2, 1)))
            tickets.append(s.commit(at(3, 2), producer_id=A))
            tickets.append(s.commit(at(4, 3), producer_id=A))
            tickets.append(s.commit(at(5, 4)))
        assert [len(records) for records in s.appends] == [2, 1, 1, 1]
        assert all(ticket.answer.errors == (NONE,) for ticket in tickets)

    def test_one_that_cannot_be_stored_takes_no_other_along(self) -> None:
        s = Scenario()
        s.hold_appends = True
        with s.turn():
            first = s.commit(at(1))
            second = s.commit(at(2, 1), producer_id=A)
        s.finish_append()
        s.fail_appends = ErrorCode.INVALID_PRODUCER_EPOCH
        s.finish_append()
        assert first.answer.errors == (NONE,)
        assert second.answer.errors == (ErrorCode.INVALID_PRODUCER_EPOCH,)
        assert not s.group.offsets.has_pending


class TestEndsMeanwhile:
    @pytest.mark.parametrize("commit", [True, False])
    def test_a_transaction_that_ends_before_its_append_is_known_to_be_durable(
        self, *, commit: bool
    ) -> None:
        s = Scenario()
        s.hold_appends = True
        ticket = s.commit(at(1), producer_id=A)
        s.end_transaction(A, commit=commit)
        assert ticket.is_parked
        s.finish_append()
        assert ticket.answer.errors == (NONE,)
        assert s.offset() == (1 if commit else None)
        assert not s.group.offsets.has_pending

    def test_what_has_waited_too_long_for_its_turn_is_not_appended(self) -> None:
        s = Scenario(GroupConfig(offset_metadata_max_units=1))
        ended: list[ErrorCode] = []
        s.hold_appends = True
        with s.turn():
            s.commit(at(1))
            texts = (OffsetToCommit("t", 0, 1, metadata="ab"), at(2, 1))
            late = s.commit(*texts, producer_id=A, check=lambda: ended[0] if ended else NONE)
            behind = s.commit(at(3, 2))
        ended.append(ErrorCode.INVALID_PRODUCER_EPOCH)
        s.finish_append()
        assert late.answer.errors == (
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
        assert behind.is_parked
        s.finish_append()
        assert behind.answer.errors == (NONE,)
        assert [len(records) for records in s.appends] == [1, 1]

    def test_the_only_one_of_its_turn_that_comes_too_late_is_told_so(self) -> None:
        s = Scenario()
        late = s.commit(at(1), producer_id=A, check=lambda: ErrorCode.INVALID_TXN_STATE)
        assert late.answer.errors == (ErrorCode.INVALID_TXN_STATE,)
        assert not s.log


class TestRemoval:
    def test_a_deleted_group_leaves_no_pending_ones_in_the_log(self) -> None:
        s = Scenario()
        s.commit(at(1), at(1, 1), producer_id=A)
        s.commit(at(2, 1))
        assert s.delete() is NONE
        buried = {record for record in s.log if isinstance(record, OffsetTombstone)}
        assert buried == {OffsetTombstone("g", "t", partition) for partition in (0, 1)}
        s.end_transaction(A)
        s.restart()
        assert not s.group.offsets

    def test_a_position_of_the_living_topic_survives_one_of_the_former(self) -> None:
        s = Scenario()
        living, former = bytes(range(16)), bytes(range(1, 17))
        s.commit(OffsetToCommit("t", 0, 1, topic_id=former), producer_id=A)
        s.commit(OffsetToCommit("t", 0, 2, topic_id=living), producer_id=B)
        s.step(lambda: s.group.forget_topics({"t": living}))
        s.end_transaction(A)
        s.end_transaction(B)
        s.restart()
        assert s.group.committed("t", 0, living) is not None

    def test_nothing_expires_that_a_transaction_holds(self) -> None:
        s = Scenario()
        s.commit(at(1), at(1, 1))
        s.commit(at(2), producer_id=A)
        s.ms += RETENTION
        s.sweep()
        assert (s.offset("t", 0), s.offset("t", 1), s.state) == (1, None, "Empty")
        s.end_transaction(A, commit=False)
        s.sweep()
        assert s.state == "Dead"

    def test_all_places_with_pending_positions_are_known(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        s.commit(at(2))
        assert [place for place, _ in s.group.offsets.pending_items()] == [TopicPartition("t", 0)]
        assert s.group.offsets.pending_producers() == [A]
        assert s.group.offsets.has_any(["t"])
        assert not s.group.offsets.has_any(["u"])
