"""After a loss of power an id is given an epoch that no producer has."""

import pytest

from kohort.broker.core.transaction.requests import EXHAUSTED_EPOCH
from tests.support.transactions.driven_id import ORDERS, PID, Driven, S, given, stored


def fence(driven: Driven, epoch: int) -> None:
    driven.core.fence(epoch, driven.now)
    driven.carry_out()


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_idle_id_goes_on_behind_the_epoch(state: S) -> None:
    driven = Driven(stored(state, 7), last_epoch=6)
    fence(driven, 12)
    assert driven.state is S.EMPTY
    assert driven.producer == (PID, 12)
    # Who has the epoch before is no predecessor.
    assert driven.core.last_epoch == -1
    assert driven.init() == given(PID, 13)


def test_an_open_transaction_is_aborted_first() -> None:
    driven = Driven(stored(S.ONGOING, 7))
    fence(driven, 12)
    assert driven.states == [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert [place for place, *_ in driven.marked] == [ORDERS]
    fence(driven, 12)
    assert driven.producer == (PID, 12)


def test_an_exhausted_epoch_is_replaced_by_another_producer() -> None:
    driven = Driven(stored(S.EMPTY, 7))
    fence(driven, EXHAUSTED_EPOCH + 2)
    assert driven.producer == (PID, EXHAUSTED_EPOCH)
    assert driven.init().producer_id != PID
