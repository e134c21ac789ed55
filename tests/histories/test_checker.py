"""The checker finds what is planted, and nothing in a history that may be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.histories.anomalies import Kind
from tests.histories.checker import check
from tests.histories.cycles import cycles_in
from tests.histories.history import (
    History,
    Move,
    Observed,
    Poll,
    Sent,
    Transaction,
    TransactionOutcome,
)

Plant = Callable[[History], None]
COMMITTED = TransactionOutcome.COMMITTED
COPY = 4
"""The log of the copies of log 0."""


def sound() -> History:
    """Log 0 holds 1 and 2 at 0 and 1, a marker, 3 (aborted) at 3, a marker, 4 at 5, a marker; log 1
    holds 5 at 0, which belongs to 4, and a marker; log 4 holds copies of 1, 2 and 4.
    """
    return History(
        transactions=[
            Transaction("a", "a/1", COMMITTED, (Sent(0, 1, 0), Sent(0, 2, 1))),
            Transaction("b", "b/1", TransactionOutcome.ABORTED, (Sent(0, 3, 3),)),
            Transaction(
                "a",
                "a/1",
                TransactionOutcome.UNKNOWN,
                (Sent(0, 4, 5), Sent(1, 5, 0)),
                polled=(1, 2),
            ),
            Transaction(
                "copier",
                "copier/1",
                COMMITTED,
                (Sent(COPY, 11, 0, 0), Sent(COPY, 12, 1, 1)),
                polled=(1, 2),
                move=Move(0, 0, 3),
            ),
            Transaction(
                "copier",
                "copier/2",
                COMMITTED,
                (Sent(COPY, 14, 3, 5),),
                polled=(4,),
                move=Move(0, 3, 7),
            ),
        ],
        polls=[
            *committed_polls("w"),
            Poll("u", False, 0, 0, 5, ((0, 1), (1, 2), (3, 3)), 3),
            Poll("u", False, 0, 5, 7, ((5, 4),), 7),
            Poll("u", False, 1, 0, 2, ((0, 5),), 2),
            Poll("u", False, COPY, 0, 5, ((0, 11), (1, 12), (3, 14)), 5),
            *committed_polls("v"),
        ],
        observed=[Observed(0, -1), Observed(0, 3), Observed(0, 7)],
        ends={0: 7, 1: 2, COPY: 5},
        lasting=frozenset({"w", "u"}),
    )


def committed_polls(reader: str) -> list[Poll]:
    return [
        Poll(reader, True, 0, 0, 3, ((0, 1), (1, 2)), 3),
        Poll(reader, True, 0, 3, 7, ((5, 4),), 7),
        Poll(reader, True, 1, 0, 2, ((0, 5),), 2),
        Poll(reader, True, COPY, 0, 5, ((0, 11), (1, 12), (3, 14)), 5),
    ]


def without(history: History, value: int) -> None:
    """Remove the value from all polls, as if no reader had read it."""
    history.polls = [
        replace(poll, records=tuple(one for one in poll.records if one[1] != value))
        for poll in history.polls
    ]


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert check(sound()) == []


def test_an_unknown_transaction_may_be_nowhere() -> None:
    history = sound()
    without(history, 4)
    without(history, 5)
    without(history, 14)
    changed(4, outcome=TransactionOutcome.ABORTED)(history)
    history.observed.pop()
    assert check(history) == []


def begin_elsewhere(
    history: History, transactions: list[Transaction], logs: dict[int, list[int]]
) -> None:
    """Commit transactions to logs of their own, of which both levels read these values."""
    history.transactions += transactions
    for log, values in logs.items():
        for reader, is_committed in (("w", True), ("u", False)):
            end = len(values) + len(transactions)
            poll = Poll(reader, is_committed, log, 0, end, tuple(enumerate(values)), end)
            history.polls.append(poll)


def crossing(other_id: str) -> Plant:
    """Two transactions that lie in two logs in different orders."""
    transactions = [
        Transaction("x", "x/1", COMMITTED, (Sent(2, 31, 0), Sent(3, 32, 1))),
        Transaction(other_id, "x/2", COMMITTED, (Sent(2, 41, 1), Sent(3, 42, 0))),
    ]
    return lambda history: begin_elsewhere(history, transactions, {2: [31, 41], 3: [42, 32]})


def test_ids_may_lie_in_two_logs_in_different_orders() -> None:
    history = sound()
    crossing("y")(history)
    assert check(history) == []


def plant_mixed_up_transactions(history: History) -> None:
    """Two of one id in one log, the second within the first."""
    transactions = [
        Transaction("x", "x/1", COMMITTED, (Sent(2, 31, 0), Sent(2, 32, 2))),
        Transaction("x", "x/2", COMMITTED, (Sent(2, 41, 1),)),
    ]
    begin_elsewhere(history, transactions, {2: [31, 41, 32]})


def polled(number: int, poll: Poll) -> Plant:
    def plant(history: History) -> None:
        history.polls[number] = poll

    return plant


def changed(number: int, **changes: Any) -> Plant:  # noqa: ANN401
    def plant(history: History) -> None:
        history.transactions[number] = replace(history.transactions[number], **changes)

    return plant


def plant_stable_offset_beyond_what_is_undecided(history: History) -> None:
    """Told before the commit was asked for."""
    changed(2, asked_s=10)(history)
    polled(5, replace(history.polls[5], answered_s=9))(history)


def plant_position_of_an_aborted_copier(history: History) -> None:
    changed(4, outcome=TransactionOutcome.ABORTED)(history)
    without(history, 14)


def plant_second_copy(history: History) -> None:
    sends, move = (Sent(COPY, 24, 5, 5),), Move(0, 3, 7)
    history.transactions.append(Transaction("copier", "copier/3", COMMITTED, sends, move=move))
    history.polls += [
        Poll("w", True, COPY, 5, 7, ((5, 24),), 7),
        Poll("u", False, COPY, 5, 7, ((5, 24),), 7),
    ]


def plant_missing_copy(history: History) -> None:
    del history.transactions[4]
    history.observed.pop()
    without(history, 14)


PLANTED: dict[str, tuple[Plant, Kind]] = {
    # A twin of one id wrote behind its successor's back.
    "write cycle": (crossing("x"), Kind.G0),
    "mixed up transactions": (plant_mixed_up_transactions, Kind.G0),
    "aborted read": (polled(1, Poll("w", True, 0, 3, 7, ((3, 3), (5, 4)), 7)), Kind.G1A),
    "undecided is stable": (plant_stable_offset_beyond_what_is_undecided, Kind.G1B),
    "read beyond stable": (polled(1, Poll("w", True, 0, 3, 7, ((5, 4),), 5)), Kind.G1B),
    # The first transaction has read what the third wrote, which has read what the first wrote.
    "circle of reads": (changed(0, polled=(4,)), Kind.G1C),
    "lost write": (
        lambda history: history.transactions.append(
            Transaction("c", "c/1", COMMITTED, (Sent(1, 50, 3),))
        ),
        Kind.LOST_WRITE,
    ),
    "duplicate": (polled(2, Poll("w", True, 1, 0, 3, ((0, 5), (2, 5)), 3)), Kind.DUPLICATE),
    "torn transaction": (lambda history: without(history, 5), Kind.TORN),
    "phantom": (polled(2, Poll("w", True, 1, 0, 3, ((0, 5), (2, 99)), 3)), Kind.PHANTOM),
    # Acknowledged at another offset than it is read at.
    "record elsewhere": (changed(0, sends=(Sent(0, 1, 0), Sent(0, 2, 2))), Kind.PHANTOM),
    "change": (polled(4, Poll("u", False, 0, 0, 5, ((0, 1), (1, 4), (3, 3)), 3)), Kind.CHANGED),
    "skip": (polled(0, Poll("w", True, 0, 0, 3, ((1, 2),), 3)), Kind.POLL_SKIP),
    "skip of uncommitted": (
        polled(4, Poll("u", False, 0, 0, 5, ((0, 1), (3, 3)), 3)),
        Kind.POLL_SKIP,
    ),
    "jump": (polled(1, Poll("w", True, 0, 2, 7, ((5, 4),), 7)), Kind.NONMONOTONIC_POLL),
    "disorder in a poll": (
        polled(0, Poll("w", True, 0, 0, 3, ((1, 2), (0, 1)), 3)),
        Kind.NONMONOTONIC_POLL,
    ),
    "disorder of sends": (
        changed(0, sends=(Sent(0, 2, 1), Sent(0, 1, 0))),
        Kind.NONMONOTONIC_SEND,
    ),
    "stable goes back": (
        polled(0, Poll("w", True, 0, 0, 3, ((0, 1), (1, 2)), 8)),
        Kind.STABLE_WENT_BACK,
    ),
    # It has read to the end, by what it was told.
    "not given all": (polled(1, Poll("w", True, 0, 3, 7, (), 7)), Kind.UNSEEN),
    "held back": (lambda history: history.polls.__delitem__(1), Kind.UNSEEN),
    "position of an aborted copier": (
        plant_position_of_an_aborted_copier,
        Kind.OFFSET_WITHOUT_RECORDS,
    ),
    "position of no one": (
        lambda history: history.observed.insert(2, Observed(0, 5)),
        Kind.OFFSET_WITHOUT_RECORDS,
    ),
    "position not committed": (
        lambda history: history.observed.__delitem__(-1),
        Kind.RECORDS_WITHOUT_OFFSET,
    ),
    "position goes back": (
        lambda history: history.observed.insert(2, Observed(0, -1)),
        Kind.RECORDS_WITHOUT_OFFSET,
    ),
    "second copy": (plant_second_copy, Kind.COPIED_NOT_ONCE),
    "missing copy": (plant_missing_copy, Kind.COPIED_NOT_ONCE),
    "copy of an aborted record": (
        changed(4, sends=(Sent(COPY, 14, 3, 5), Sent(COPY, 13, 4, 3))),
        Kind.COPIED_NOT_ONCE,
    ),
}


@pytest.mark.parametrize(("plant", "kind"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_found(plant: Plant, kind: Kind) -> None:
    history = sound()
    plant(history)
    assert kind in {anomaly.kind for anomaly in check(history)}


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED.values()} == set(Kind)


def test_cycles_of_a_graph_are_found_each_once() -> None:
    graph = {1: {2}, 2: {3}, 3: {1, 4}, 4: {5}, 5: {6}, 6: {4}, 7: {1}}
    assert sorted(sorted(cycle) for cycle in cycles_in(graph)) == [[1, 2, 3], [4, 5, 6]]


def test_a_chain_of_a_hundred_thousand_has_no_cycle() -> None:
    assert cycles_in({number: {number + 1} for number in range(100_000)}) == []
