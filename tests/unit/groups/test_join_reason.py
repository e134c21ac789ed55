"""The decision table of joins, all sixteen rows, on real groups and in full on the function."""

import itertools

import pytest

from kohort.groups.classic.decisions import Decision, Joiner, decide
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import CauseAdded, RebalanceAvoided, TriggerKind
from kohort.groups.reasons import FORCING
from kohort.groups.requests import JoinResult
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.scenario import SECOND, Scenario, subscription

ANY = list(JoinReason)
WEAK = [
    JoinReason.UNKNOWN,
    JoinReason.RESTART,
    JoinReason.GROUP_REBALANCING,
    JoinReason.MEMBERSHIP_LOST,
]
"""Neither forcing nor TOPIC_METADATA_CHANGE."""
UNRECOGNISED = 77
CHANGED = (("range", subscription("t", "u")),)
COMPLETING, STABLE = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
any_reason = pytest.mark.parametrize("reason", ANY)
any_force = pytest.mark.parametrize("reason", sorted(FORCING))


class TestRowByRow:
    @any_reason
    def test_row_1_errors_come_before_reasons(self, reason: JoinReason) -> None:
        s = Scenario()
        s.new_id()
        assert s.join("gone", reason=reason).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
        s.step(lambda: s.group.unload(ErrorCode.NOT_COORDINATOR, s.now))
        assert s.join(reason=reason).answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    @any_reason
    def test_row_2_an_empty_group_begins_with_the_initial_delay(self, reason: JoinReason) -> None:
        s = Scenario()
        s.join_dynamic(reason=reason)
        assert s.state == "PreparingRebalance"
        assert s.classic.data.initial is not None
        assert s.trigger().kind is TriggerKind.MEMBER_ADDED
        assert s.trigger().reason.decisive is reason

    @any_reason
    def test_row_3_a_first_join_gets_its_id_and_the_reason_is_kept(
        self, reason: JoinReason
    ) -> None:
        s = Scenario()
        s.stable(2)
        member_id = s.new_id(reason=reason)
        assert s.state == "Stable"
        assert s.classic.roster.pending[member_id].reason.decisive is reason
        s.join(member_id)
        assert s.trigger().reason.decisive is reason

    @any_reason
    def test_row_4_a_running_rebalance_takes_part_of_it(self, reason: JoinReason) -> None:
        s = Scenario()
        first, _ = s.preparing(2)
        ticket = s.join(first, reason=reason)
        assert ticket.is_parked
        s.join(instance="new", reason=reason)
        added = s.told(CauseAdded)[-1].trigger
        assert (added.kind, added.reason.decisive) == (TriggerKind.STATIC_ADDED, reason)

    @pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
    @any_reason
    def test_row_5_somebody_new_outranks_every_reason(self, state: str, reason: JoinReason) -> None:
        for changes in ({"requires_known_id": False}, {"instance": "new"}):
            s = Scenario()
            members = s.completing(2)
            if state == "Stable":
                s.settle(members)
            assert s.join(reason=reason, **changes).is_parked
            assert s.state == "PreparingRebalance"

    @any_reason
    def test_row_6_a_replacement_while_the_leader_assigns(self, reason: JoinReason) -> None:
        s = Scenario()
        for name in "ab":
            s.join(instance=name)
        s.advance(6 * SECOND)
        assert s.join(instance="b", reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (6, TriggerKind.STATIC_REPLACED)

    @any_reason
    def test_row_7_a_changed_list_while_the_leader_assigns(self, reason: JoinReason) -> None:
        s = Scenario()
        members = s.completing(2)
        assert s.join(members[1], protocols=CHANGED, reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (7, TriggerKind.PROTOCOLS_CHANGED)

    @any_reason
    def test_row_8_a_running_rebalance_is_not_doubled(self, reason: JoinReason) -> None:
        s = Scenario()
        for member_id in s.completing(2):
            assert s.join(member_id, reason=reason).answer.generation == 1
        assert s.state == "CompletingRebalance"

    @any_reason
    def test_row_9_a_changed_list_outranks_every_reason(self, reason: JoinReason) -> None:
        s = Scenario()
        members = s.stable(2)
        assert s.join(members[0], protocols=CHANGED, reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (9, TriggerKind.PROTOCOLS_CHANGED)
        s = Scenario()
        both = (("range", b""), ("sticky", b""))
        s.stable_static("a", "b", protocols=both)
        assert s.join(instance="b", protocols=both[1:], reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (9, TriggerKind.STATIC_REPLACED)

    @any_force
    @pytest.mark.parametrize("index", [0, 1])
    def test_row_10_a_forcing_reason_of_anybody(self, reason: JoinReason, index: int) -> None:
        s = Scenario()
        members = s.stable(2)
        assert s.join(members[index], reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (10, TriggerKind.FORCED_BY_REASON)
        assert s.trigger().was_leader == (index == 0)
        s = Scenario()
        s.stable_static("a", "b")
        assert s.join(instance="ab"[index], reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (10, TriggerKind.STATIC_REPLACED)

    def test_row_11_the_leader_saw_its_topics_change(self) -> None:
        reason = JoinReason.TOPIC_METADATA_CHANGE
        s = Scenario()
        members = s.stable(2)
        assert s.join(members[0], reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (11, TriggerKind.FORCED_BY_REASON)
        s = Scenario()
        s.stable_static("a", "b")
        assert s.join(instance="a", reason=reason).is_parked
        assert s.trigger().row == 11

    def test_row_12_a_followers_word_on_topics_does_not_count(self) -> None:
        reason = JoinReason.TOPIC_METADATA_CHANGE
        s = Scenario()
        members = s.stable(2)
        assert s.join(members[1], reason=reason).answer.generation == 1
        (avoided,) = s.avoided()
        assert (avoided.row, avoided.kind) == (12, TriggerKind.FORCED_BY_REASON)
        assert avoided.reason.decisive is reason
        s = Scenario()
        s.stable_static("a", "b")
        assert s.join(instance="b", reason=reason).answer.generation == 1
        assert s.avoided()[0].row == 12
        assert s.state == "Stable"

    def test_row_13_a_leader_that_restarted_keeps_everybody_at_work(self) -> None:
        s = Scenario()
        leader, follower = s.stable(2)
        s.ms += SECOND
        answer = s.join(
            leader,
            reason=JoinReason.RESTART,
            session_timeout_ms=20_000,
            rebalance_timeout_ms=30_000,
        ).answer
        assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, leader)
        assert answer.skip_assignment
        assert [member.member_id for member in answer.members] == [leader, follower]
        assert s.state == "Stable"
        (avoided,) = s.avoided()
        assert (avoided.row, avoided.was_leader) == (13, True)
        member = s.classic.roster.get(leader)
        assert member is not None
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)
        assert member.session_deadline_ms == s.ms + 20_000

    def test_row_13_an_older_client_must_not_think_that_it_leads(self) -> None:
        s = Scenario()
        leader, _ = s.stable(2)
        answer = s.join(leader, reason=JoinReason.RESTART, can_skip_assignment=False).answer
        assert answer == JoinResult(
            member_id=leader,
            generation=1,
            protocol_type="consumer",
            protocol_name="range",
            leader="",
        )

    def test_row_13_but_not_if_its_topics_changed_meanwhile(self) -> None:
        s = Scenario()
        leader, _ = s.stable(2)
        s.partition_counts["t"] += 1
        assert s.join(leader, reason=JoinReason.RESTART).is_parked
        assert (s.trigger().row, s.trigger().kind) == (13, TriggerKind.LEADER_REJOINED)
        assert s.trigger().detail

    @pytest.mark.parametrize("reason", [0, 7, 8, UNRECOGNISED, -1])
    def test_row_14_a_leader_that_joins_again_rebalances_as_ever(self, reason: int) -> None:
        s = Scenario()
        leader, _ = s.stable(2)
        assert s.join(leader, reason=reason).is_parked
        assert (s.trigger().row, s.trigger().kind) == (14, TriggerKind.LEADER_REJOINED)

    @pytest.mark.parametrize("reason", [0, 1, 7, 8, UNRECOGNISED])
    @pytest.mark.parametrize("who", ["a", "b"])
    def test_row_15_a_replacement_does_not(self, reason: int, who: str) -> None:
        s = Scenario()
        s.stable_static("a", "b")
        assert s.join(instance=who, reason=reason).answer.generation == 1
        (avoided,) = s.avoided()
        assert (avoided.row, avoided.kind) == (15, TriggerKind.STATIC_REPLACED)
        assert avoided.was_leader == (who == "a")

    @pytest.mark.parametrize("reason", [0, 1, 7, 8, UNRECOGNISED])
    def test_row_16_nor_does_a_follower(self, reason: int) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        assert s.join(follower, reason=reason).answer.generation == 1
        assert s.state == "Stable"
        # Worth a note only if there was a reason.
        rows = [avoided.row for avoided in s.avoided()]
        assert rows == ([16] if reason in {1, 7, 8} else [])

    def test_row_16_a_reason_in_words_is_noted_and_changes_nothing(self) -> None:
        s = Scenario()
        _, follower = s.stable(2)
        assert s.join(follower, text="rebalance enforced by user").answer.generation == 1
        (avoided,) = s.avoided()
        assert avoided.kind is TriggerKind.FOLLOWER_REJOINED
        assert avoided.reason.reason is JoinReason.ENFORCED


EITHER = (False, True)
EXPECTED = {
    # (state, joiner, differs, leads): row for a forcing reason, topic change, restart, the rest.
    **{(state, Joiner.NEW, d, x): (5,) * 4 for state in (COMPLETING, STABLE) for d in EITHER for x in EITHER},  # noqa: E501 - a table.
    **{(COMPLETING, Joiner.REPLACEMENT, d, x): (6,) * 4 for d in EITHER for x in EITHER},
    **{(COMPLETING, Joiner.KNOWN, True, x): (7,) * 4 for x in EITHER},
    **{(COMPLETING, Joiner.KNOWN, False, x): (8,) * 4 for x in EITHER},
    **{(STABLE, Joiner.KNOWN, True, x): (9,) * 4 for x in EITHER},
    **{(STABLE, Joiner.REPLACEMENT, True, x): (9,) * 4 for x in EITHER},
    (STABLE, Joiner.KNOWN, False, True): (10, 11, 13, 14),
    (STABLE, Joiner.KNOWN, False, False): (10, 12, 16, 16),
    (STABLE, Joiner.REPLACEMENT, False, True): (10, 11, 15, 15),
    (STABLE, Joiner.REPLACEMENT, False, False): (10, 12, 15, 15),
}  # fmt: skip
REBALANCING_ROWS = {5, 6, 7, 9, 10, 11, 14}


@pytest.mark.parametrize("reason", ANY)
@pytest.mark.parametrize(
    ("state", "joiner", "differs", "leads"),
    list(itertools.product((COMPLETING, STABLE), Joiner, (False, True), (False, True))),
)
def test_the_first_row_that_matches_decides(
    state: ClassicState, joiner: Joiner, differs: bool, leads: bool, reason: JoinReason
) -> None:
    kind = 3
    if reason in FORCING:
        kind = 0
    elif reason is JoinReason.TOPIC_METADATA_CHANGE:
        kind = 1
    elif reason is JoinReason.RESTART:
        kind = 2
    row = EXPECTED[state, joiner, differs, leads][kind]
    expected = Decision(row, rebalance=row in REBALANCING_ROWS)
    assert decide(state, joiner, reason, differs=differs, leads=leads) == expected


@pytest.mark.parametrize("reason", WEAK)
def test_stock_clients_see_no_difference(reason: JoinReason) -> None:
    """What a stock client can do, without the tag, is row by row what Kafka does."""
    s = Scenario()
    leader, follower = s.stable(2)
    text = {JoinReason.MEMBERSHIP_LOST: "rebalance failed", JoinReason.UNKNOWN: None}.get(
        reason, "group is already rebalancing"
    )
    assert s.join(follower, text=text).answer.generation == 1
    assert s.join(leader, text=text).is_parked
    assert not [event for event in s.told(RebalanceAvoided) if event.trigger.was_leader]
