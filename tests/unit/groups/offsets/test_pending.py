"""TxnOffsetCommit in a group: who may, what is visible when, and which of several records holds."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.encoding import encode_value
from kohort.groups.records import OffsetTombstone, PendingOffset
from kohort.groups.requests import OffsetToCommit, TopicPartition
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import MINUTE, Scenario

NONE = ErrorCode.NONE
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
FENCED = ErrorCode.FENCED_INSTANCE_ID
RETENTION = 7 * 24 * 60 * MINUTE
A, B = 7, 8
"""Two producers."""


def at(offset: int, partition: int = 0) -> OffsetToCommit:
    return OffsetToCommit("t", partition, offset)


class TestWhoMay:
    """Rows 4 to 10 of the table; that the group is absent is for the coordinator to see."""

    @pytest.mark.parametrize(
        ("who", "error"),
        [
            pytest.param({}, NONE, id="nobody: producers from before KIP-447"),
            pytest.param({"member_id": "x"}, UNKNOWN_MEMBER_ID, id="unknown member"),
            pytest.param({"generation": 1}, UNKNOWN_MEMBER_ID, id="generation without member"),
            pytest.param({"instance": "x"}, UNKNOWN_MEMBER_ID, id="unknown instance"),
            pytest.param({"member_id": "a"}, ILLEGAL_GENERATION, id="member without generation"),
            pytest.param({"member_id": "a", "generation": 0}, ILLEGAL_GENERATION, id="former"),
            pytest.param({"member_id": "a", "generation": 2}, ILLEGAL_GENERATION, id="future"),
            pytest.param({"member_id": "a", "generation": 1}, NONE, id="member"),
            pytest.param({"member_id": "a", "generation": 1, "instance": "A"}, NONE, id="static"),
            pytest.param({"member_id": "b", "generation": 0, "instance": "A"}, FENCED, id="fenced"),
            pytest.param({"member_id": "", "generation": 1, "instance": "A"}, FENCED, id="no id"),
        ],
    )
    def test_members_are_checked_as_far_as_the_producer_names_them(
        self, who: dict[str, Any], error: ErrorCode
    ) -> None:
        s = Scenario()
        ids = s.stable_static("A", "B")
        if who.get("member_id") in {"a", "b"}:
            who = {**who, "member_id": ids[who["member_id"].upper()]}
        assert s.commit_error(producer_id=A, **who) is error
        assert s.group.offsets.is_unstable("t", 0) == (error is NONE)

    @pytest.mark.parametrize("member_id", ["", "somebody"])
    def test_an_empty_group_takes_them_from_outside(self, member_id: str) -> None:
        s = Scenario()
        assert s.commit_error(producer_id=A, member_id=member_id) is NONE
        assert (s.state, s.classic.data.protocol_type) == ("Empty", None)

    def test_an_empty_group_takes_none_of_a_generation(self) -> None:
        s = Scenario()
        assert s.commit_error(producer_id=A, generation=0) is UNKNOWN_MEMBER_ID

    def test_no_state_of_the_group_is_in_the_way(self) -> None:
        s = Scenario()
        _, follower = s.completing(2)
        assert s.commit_error(member_id=follower, generation=1, producer_id=A) is NONE

    def test_the_session_of_the_member_does_not_start_again(self) -> None:
        s = Scenario()
        (member_id,) = s.stable(1)
        before_ms = s.classic.roster.get(member_id).session_deadline_ms  # type: ignore[union-attr]
        s.advance(1_000)
        s.commit(member_id=member_id, generation=1, producer_id=A)
        after_ms = s.classic.roster.get(member_id).session_deadline_ms  # type: ignore[union-attr]
        assert after_ms == before_ms

    def test_too_long_a_text_fails_alone(self) -> None:
        s = Scenario(GroupConfig(offset_metadata_max_units=1))
        texts = (OffsetToCommit("t", 0, 1, metadata="ab"), OffsetToCommit("t", 1, 1, metadata="a"))
        answer = s.commit(*texts, producer_id=A).answer
        assert answer.errors == (ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE)
        assert [s.group.offsets.is_unstable("t", p) for p in (0, 1)] == [False, True]


class TestVisible:
    def test_positions_are_invisible_until_it_commits(self) -> None:
        s = Scenario()
        s.commit(at(1))
        assert s.commit_error(at(2), producer_id=A) is NONE
        assert s.offset() == 1
        assert s.group.offsets.is_unstable("t", 0)
        assert not s.group.offsets.is_unstable("t", 1)
        s.end_transaction(A)
        assert s.offset() == 2
        assert not s.group.offsets.is_unstable("t", 0)

    def test_an_aborted_one_leaves_nothing(self) -> None:
        s = Scenario()
        s.commit(at(2), producer_id=A)
        s.end_transaction(A, commit=False)
        assert s.offset() is None
        assert not s.group.offsets

    def test_another_producers_end_does_not_matter(self) -> None:
        s = Scenario()
        s.commit(producer_id=A)
        s.end_transaction(B)
        assert s.offset() is None
        assert s.group.offsets.is_unstable("t", 0)

    def test_a_repeated_commit_of_the_transaction_takes_the_place_of_the_first(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        s.commit(at(2), producer_id=A)
        s.end_transaction(A)
        assert s.offset() == 2

    def test_they_look_in_the_log_as_any_other(self) -> None:
        s = Scenario()
        s.commit(at(5), producer_id=A)
        s.commit(at(5))
        pending, plain = s.log
        assert isinstance(pending, PendingOffset)
        assert (pending.producer_id, pending.producer_epoch) == (A, 0)
        assert not isinstance(plain, PendingOffset)
        assert encode_value(pending) == encode_value(plain)  # type: ignore[arg-type]


ORDERS: list[tuple[list[Callable[[Scenario], object]], int | None]] = [
    # What is done, and the position that holds at the end.
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2)),
      lambda s: s.end_transaction(A)], 2),
    ([lambda s: s.commit(at(1)), lambda s: s.commit(at(2), producer_id=A),
      lambda s: s.end_transaction(A)], 2),
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2), producer_id=B),
      lambda s: s.end_transaction(B), lambda s: s.end_transaction(A)], 2),
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2), producer_id=B),
      lambda s: s.end_transaction(A), lambda s: s.end_transaction(B)], 2),
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2), producer_id=B),
      lambda s: s.end_transaction(B, commit=False), lambda s: s.end_transaction(A)], 1),
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2), producer_id=B),
      lambda s: s.commit(at(3), producer_id=A), lambda s: s.end_transaction(B),
      lambda s: s.end_transaction(A)], 3),
    ([lambda s: s.commit(at(1), producer_id=A), lambda s: s.commit(at(2)),
      lambda s: s.commit(at(3), producer_id=A), lambda s: s.end_transaction(A)], 3),
]  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("acts", "holds"), ORDERS)
def test_the_record_that_lies_later_in_the_log_holds(
    acts: list[Callable[[Scenario], object]], holds: int | None, *, restarts: bool
) -> None:
    s = Scenario()
    for act in acts:
        act(s)
        if restarts:
            s.restart()
    assert s.offset() == holds
    assert not s.group.offsets.has_pending


class TestSeveralTransactions:
    def test_a_position_is_unstable_until_the_last_of_them_ends(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        s.commit(at(2), producer_id=B)
        s.end_transaction(B)
        assert s.offset() == 2
        assert s.group.offsets.is_unstable("t", 0)
        s.end_transaction(A)
        assert s.offset() == 2
        assert not s.group.offsets.is_unstable("t", 0)

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

    def test_a_plain_commit_on_its_way_holds_though_the_marker_comes_first(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        s.hold_appends = True
        s.commit(at(2))
        s.end_transaction(A)
        s.finish_append()
        assert s.offset() == 2
        s.restart()
        assert s.offset() == 2


class TestRemoval:
    def test_deleted_positions_do_not_come_back_with_the_commit(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        assert s.delete_offsets(("t", 0)).partitions == (NONE,)
        assert s.log[-1] == OffsetTombstone("g", "t", 0)
        assert not s.group.offsets.is_unstable("t", 0)
        s.end_transaction(A)
        assert s.offset() is None
        s.restart()
        assert s.offset() is None

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

    def test_topics_that_go_take_them_along_with_a_tombstone(self) -> None:
        s = Scenario()
        s.commit(at(1), producer_id=A)
        s.step(lambda: s.group.forget_topics({"t": None}))
        assert s.log[-1] == OffsetTombstone("g", "t", 0)
        s.end_transaction(A)
        assert s.offset() is None

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

    def test_a_group_that_has_nothing_else_is_not_swept_away(self) -> None:
        s = Scenario()
        s.commit(producer_id=A)
        s.sweep()
        assert s.state == "Empty"
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


def test_a_restart_keeps_what_waits() -> None:
    s = Scenario()
    s.commit(at(1))
    s.commit(at(2), producer_id=A)
    s.restart()
    assert s.offset() == 1
    assert s.group.offsets.is_unstable("t", 0)
    s.end_transaction(A)
    assert s.offset() == 2
