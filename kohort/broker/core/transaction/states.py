"""The states of a transactional id, and the legal transitions between them.

Prepare* is the decision: once its record is durable the outcome is final, whatever crashes.
Complete* means that every partition has its marker.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Self


class TransactionState(Enum):
    """`value` is the name on the wire, `code` the number in the log.

    The text of each state gives the answers to requests with the current producer id and epoch,
    while no record is being written.
    """

    code: int

    def __new__(cls, name: str, code: int) -> Self:
        state = object.__new__(cls)
        state._value_ = name
        state.code = code
        return state

    EMPTY = "Empty", 0
    """The producer has its id and epoch, and no transaction.

    InitProducerId: returns the next epoch. Adding partitions: begins a transaction. EndTxn:
    INVALID_TXN_STATE, but an abort of version 5 is executed. May expire.

    Ways out: Ongoing; PrepareAbort by EndTxn v5; Dead.
    """
    ONGOING = "Ongoing", 1
    """The transaction is open: a request to add partitions was accepted, even if it named none.

    InitProducerId: aborts the transaction (a fence). Adding partitions: accepted. EndTxn: decides.

    Ways out: PrepareCommit; PrepareAbort by the client, by the timeout, or by a fence.
    """
    PREPARE_COMMIT = "PrepareCommit", 2
    """The transaction is committed, and markers are being written.

    All requests: CONCURRENT_TRANSACTIONS. Way out: CompleteCommit.
    """
    PREPARE_ABORT = "PrepareAbort", 3
    """The transaction is aborted, and markers are being written; otherwise like PrepareCommit. Way
    out: CompleteAbort."""
    COMPLETE_COMMIT = "CompleteCommit", 4
    """All markers are written. Like Empty, but EndTxn of the same outcome may be a retry."""
    COMPLETE_ABORT = "CompleteAbort", 5
    """An aborted transaction whose markers are all written; answers and ways out are those of
    CompleteCommit."""
    DEAD = "Dead", 6
    """The id is being removed; never in the log, and never listed."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence", 7
    """The epoch is being raised to abort the transaction of a producer that was replaced, or was
    silent for too long. Only during a transition that is being written; never in the log."""

    __hash__ = object.__hash__
    """Hash by identity, as Enum compares: faster than Enum's hash, and states are looked up for
    every record."""

    @property
    def is_idle(self) -> bool:
        """Whether the id has no transaction in progress, so that it may expire."""
        return self in _IDLE

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is final, but not all markers are written."""
        return self is _S.PREPARE_COMMIT or self is _S.PREPARE_ABORT


_S = TransactionState
_IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
_ENDED: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

LEGAL_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState | None]]] = (
    MappingProxyType(
        {
            _S.EMPTY: frozenset({None, _S.EMPTY}) | _ENDED,
            _S.ONGOING: frozenset({_S.EMPTY, _S.ONGOING}) | _ENDED,
            _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
            _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY}) | _ENDED,
            _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
            _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
            _S.DEAD: frozenset({_S.EMPTY}) | _ENDED,
            _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
        }
    )
)
"""By state, the states from which it may be entered; None means a new id."""


def is_legal(previous: TransactionState | None, *states: TransactionState) -> bool:
    """Whether each of `states` may follow the state before it; the first follows `previous`."""
    path = (previous, *states)
    return all(
        previous in LEGAL_PREVIOUS[state] for previous, state in zip(path, states, strict=False)
    )


STORED_STATES: Final[Mapping[int, TransactionState]] = MappingProxyType(
    {state.code: state for state in _S if state not in {_S.DEAD, _S.PREPARE_EPOCH_FENCE}}
)
"""States that a record can have, by code."""
