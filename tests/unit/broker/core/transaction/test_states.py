"""The states of a transactional id, and the moves between them."""

from kohort.broker.core.transaction.states import STORED_STATES, is_legal
from tests.support.transactions.driven_id import S


def test_what_is_only_passing_is_never_stored() -> None:
    assert set(STORED_STATES) == {0, 1, 2, 3, 4, 5}
    assert all(STORED_STATES[code].code == code for code in STORED_STATES)


def test_an_intermediate_state_is_judged_on_both_sides() -> None:
    assert is_legal(S.ONGOING, S.PREPARE_EPOCH_FENCE, S.PREPARE_ABORT)
    assert not is_legal(S.EMPTY, S.PREPARE_EPOCH_FENCE, S.PREPARE_ABORT)
    assert not is_legal(S.ONGOING, S.PREPARE_EPOCH_FENCE, S.PREPARE_COMMIT)
