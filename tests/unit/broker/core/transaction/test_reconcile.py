"""What an open transaction in a partition means after a loss of power."""

import pytest

from kohort.broker.core.transaction.reconcile import (
    AddLost,
    Leave,
    OpenInPartition,
    Repair,
    WriteMarker,
    decide_repair,
)
from kohort.broker.core.transaction.records import TransactionRecord
from tests.support.transactions.driven_id import ABORT, COMMIT, FRESH, PID, V1, V2, S, stored

GUESS = WriteMarker(ABORT, 7, V1, is_guess=True)


def exhausted(state: S) -> TransactionRecord:
    """An id whose producer was replaced when its transaction of epoch 32766 ended."""
    return stored(state, 0, producer_id=FRESH, previous_producer_id=PID)


@pytest.mark.parametrize(
    ("record", "is_other_partition", "epoch", "repair"),
    [
        (stored(S.ONGOING), False, 7, Leave()),
        (stored(S.ONGOING), True, 7, AddLost()),
        (stored(S.ONGOING, client_version=V1), True, 7, AddLost()),
        (stored(S.PREPARE_COMMIT, 8), False, 7, Leave()),
        (stored(S.PREPARE_ABORT, 7, client_version=V1), False, 7, Leave()),
        (stored(S.COMPLETE_COMMIT, 8), False, 7, WriteMarker(COMMIT, 8, V2, is_guess=False)),
        (stored(S.COMPLETE_ABORT, 8), False, 7, WriteMarker(ABORT, 8, V2, is_guess=False)),
        (
            exhausted(S.COMPLETE_COMMIT),
            False,
            32_766,
            WriteMarker(COMMIT, 32_767, V2, is_guess=False),
        ),
        # What cannot be told is aborted.
        (stored(S.COMPLETE_COMMIT, 7, client_version=V1), False, 7, GUESS),
        (stored(S.COMPLETE_ABORT, 7, client_version=V1), False, 7, GUESS),
        (stored(S.COMPLETE_COMMIT, 8, client_version=V1), False, 7, GUESS),
        (stored(S.COMPLETE_COMMIT, 7), False, 7, GUESS),
        (stored(S.COMPLETE_COMMIT, 9), False, 7, GUESS),
        (stored(S.ONGOING, 8), False, 7, GUESS),
        (stored(S.ONGOING, 6), False, 7, GUESS),
        (stored(S.EMPTY, 7), False, 7, GUESS),
        (stored(S.EMPTY, 8), False, 7, GUESS),
        (stored(S.PREPARE_COMMIT, 8), True, 7, GUESS),
        # It began after what is decided, and the coordinator has lost it; or long before.
        (stored(S.PREPARE_COMMIT, 7), False, 7, GUESS),
        (stored(S.PREPARE_ABORT, 7), False, 7, GUESS),
        (stored(S.PREPARE_COMMIT, 9), False, 7, GUESS),
        (stored(S.PREPARE_COMMIT, 6, client_version=V1), False, 7, GUESS),
        (stored(S.PREPARE_COMMIT, 8, client_version=V1), False, 7, GUESS),
        (stored(S.PREPARE_COMMIT, 8, producer_id=FRESH), False, 7, GUESS),
        (exhausted(S.COMPLETE_COMMIT), False, 7, GUESS),
        (exhausted(S.ONGOING), False, 7, GUESS),
        (None, False, 7, GUESS),
    ],
)
def test_what_is_done(
    record: TransactionRecord | None, is_other_partition: bool, epoch: int, repair: Repair
) -> None:
    found = OpenInPartition("orders", 9 if is_other_partition else 2, PID, epoch)
    assert decide_repair(record, found) == repair
