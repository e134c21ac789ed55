"""The decision table of joins, all sixteen rows, on real groups and in full on the function."""

import itertools

import pytest

from kohort.groups.classic.decisions import Decision, Joiner, decide
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import TriggerKind
from kohort.groups.reasons import FORCING
from kohort.groups.requests import JoinResult
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.scenario import Scenario

ANY = list(JoinReason)
COMPLETING, STABLE = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
any_reason = pytest.mark.parametrize("reason", ANY)
any_force = pytest.mark.parametrize("reason", sorted(FORCING))


class TestRowByRow:
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
