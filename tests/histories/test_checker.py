"""The checker finds what is planted, and nothing in a history that may be."""

from collections.abc import Callable
from dataclasses import replace

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

COPY = 4
"""The log of the copies of log 0."""


def sound() -> History:
    """Log 0 holds 1 and 2 at 0 and 1, a marker, 3 (aborted) at 3, a marker, 4 at 5, a marker; log 1
    holds 5 at 0, which belongs to 4, and a marker; log 4 holds copies of 1, 2 and 4.
    """
    return History(
        transactions=[
            Transaction("a", "a/1", TransactionOutcome.COMMITTED, (Sent(0, 1, 0), Sent(0, 2, 1))),
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
                TransactionOutcome.COMMITTED,
                (Sent(COPY, 11, 0, 0), Sent(COPY, 12, 1, 1)),
                polled=(1, 2),
                move=Move(0, 0, 3),
            ),
            Transaction(
                "copier",
                "copier/2",
                TransactionOutcome.COMMITTED,
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


def kinds_in(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history)}


def without(history: History, value: int) -> None:
    """Remove the value from all polls, as if no reader had read it."""
    history.polls = [
        replace(poll, records=tuple(one for one in poll.records if one[1] != value))
        for poll in history.polls
    ]


def change_poll(history: History, number: int, poll: Poll) -> None:
    history.polls[number] = poll


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert check(sound()) == []


def test_an_unknown_transaction_may_be_nowhere() -> None:
    history = sound()
    without(history, 4)
    without(history, 5)
    without(history, 14)
    history.transactions[4] = replace(history.transactions[4], outcome=TransactionOutcome.ABORTED)
    history.observed.pop()
    assert check(history) == []


def test_ids_may_lie_in_two_logs_in_different_orders() -> None:
    history = sound()
    history.transactions += [
        Transaction("x", "x/1", TransactionOutcome.COMMITTED, (Sent(2, 31, 0), Sent(3, 32, 1))),
        Transaction("y", "y/1", TransactionOutcome.COMMITTED, (Sent(2, 41, 1), Sent(3, 42, 0))),
    ]
    for reader, is_committed in (("w", True), ("u", False)):
        history.polls += [
            Poll(reader, is_committed, 2, 0, 4, ((0, 31), (1, 41)), 4),
            Poll(reader, is_committed, 3, 0, 4, ((0, 42), (1, 32)), 4),
        ]
    assert check(history) == []


def plant_write_cycle(history: History) -> None:
    """Plant a cycle as above, but of one id: a twin wrote behind its successor's back."""
    test_ids = [
        Transaction("x", "x/1", TransactionOutcome.COMMITTED, (Sent(2, 31, 0), Sent(3, 32, 1))),
        Transaction("x", "x/2", TransactionOutcome.COMMITTED, (Sent(2, 41, 1), Sent(3, 42, 0))),
    ]
    history.transactions += test_ids
    for reader, is_committed in (("w", True), ("u", False)):
        history.polls += [
            Poll(reader, is_committed, 2, 0, 4, ((0, 31), (1, 41)), 4),
            Poll(reader, is_committed, 3, 0, 4, ((0, 42), (1, 32)), 4),
        ]


def plant_mixed_up_transactions(history: History) -> None:
    """Two of one id in one log, the second within the first."""
    history.transactions += [
        Transaction("x", "x/1", TransactionOutcome.COMMITTED, (Sent(2, 31, 0), Sent(2, 32, 2))),
        Transaction("x", "x/2", TransactionOutcome.COMMITTED, (Sent(2, 41, 1),)),
    ]
    for reader, is_committed in (("w", True), ("u", False)):
        history.polls.append(
            Poll(reader, is_committed, 2, 0, 4, ((0, 31), (1, 41), (2, 32)), 4),
        )


def plant_aborted_read(history: History) -> None:
    change_poll(history, 1, Poll("w", True, 0, 3, 7, ((3, 3), (5, 4)), 7))


def plant_stable_offset_beyond_what_is_undecided(history: History) -> None:
    """Told before the commit was asked for."""
    history.transactions[2] = replace(history.transactions[2], asked_s=10)
    change_poll(history, 5, replace(history.polls[5], answered_s=9))


def plant_read_beyond_stable_offset(history: History) -> None:
    change_poll(history, 1, Poll("w", True, 0, 3, 7, ((5, 4),), 5))


def plant_circle_of_reads(history: History) -> None:
    """The first transaction has read what the third wrote, which has read what the first wrote."""
    history.transactions[0] = replace(history.transactions[0], polled=(4,))


def plant_lost_write(history: History) -> None:
    history.transactions.append(
        Transaction("c", "c/1", TransactionOutcome.COMMITTED, (Sent(1, 50, 3),))
    )


def plant_duplicate(history: History) -> None:
    change_poll(history, 2, Poll("w", True, 1, 0, 3, ((0, 5), (2, 5)), 3))


def plant_torn_transaction(history: History) -> None:
    without(history, 5)


def plant_phantom(history: History) -> None:
    change_poll(history, 2, Poll("w", True, 1, 0, 3, ((0, 5), (2, 99)), 3))


def plant_record_elsewhere(history: History) -> None:
    """Acknowledged at another offset than it is read at."""
    history.transactions[0] = replace(history.transactions[0], sends=(Sent(0, 1, 0), Sent(0, 2, 2)))


def plant_change(history: History) -> None:
    change_poll(history, 4, Poll("u", False, 0, 0, 5, ((0, 1), (1, 4), (3, 3)), 3))


def plant_poll_skip(history: History) -> None:
    change_poll(history, 0, Poll("w", True, 0, 0, 3, ((1, 2),), 3))


def plant_poll_skip_of_uncommitted(history: History) -> None:
    change_poll(history, 4, Poll("u", False, 0, 0, 5, ((0, 1), (3, 3)), 3))


def plant_jump_of_a_reader(history: History) -> None:
    change_poll(history, 1, Poll("w", True, 0, 2, 7, ((5, 4),), 7))


def plant_disorder_in_a_poll(history: History) -> None:
    change_poll(history, 0, Poll("w", True, 0, 0, 3, ((1, 2), (0, 1)), 3))


def plant_disorder_of_sends(history: History) -> None:
    first = history.transactions[0]
    history.transactions[0] = replace(first, sends=tuple(reversed(first.sends)))


def plant_stable_offset_that_goes_back(history: History) -> None:
    change_poll(history, 0, Poll("w", True, 0, 0, 3, ((0, 1), (1, 2)), 8))


def plant_reader_that_is_not_given_all(history: History) -> None:
    """It has read to the end, by what it was told."""
    change_poll(history, 1, Poll("w", True, 0, 3, 7, (), 7))


def plant_reader_that_is_held_back(history: History) -> None:
    del history.polls[1]


def plant_position_of_an_aborted_copier(history: History) -> None:
    history.transactions[4] = replace(history.transactions[4], outcome=TransactionOutcome.ABORTED)
    without(history, 14)


def plant_position_of_no_one(history: History) -> None:
    history.observed.insert(2, Observed(0, 5))


def plant_position_that_was_not_committed(history: History) -> None:
    history.observed.pop()


def plant_position_that_goes_back(history: History) -> None:
    history.observed.insert(2, Observed(0, -1))


def plant_second_copy(history: History) -> None:
    twice = Transaction(
        "copier",
        "copier/3",
        TransactionOutcome.COMMITTED,
        (Sent(COPY, 24, 5, 5),),
        move=Move(0, 3, 7),
    )
    history.transactions.append(twice)
    history.polls += [
        Poll("w", True, COPY, 5, 7, ((5, 24),), 7),
        Poll("u", False, COPY, 5, 7, ((5, 24),), 7),
    ]


def plant_missing_copy(history: History) -> None:
    del history.transactions[4]
    history.observed.pop()
    without(history, 14)


def plant_copy_of_what_was_aborted(history: History) -> None:
    last = history.transactions[4]
    history.transactions[4] = replace(last, sends=(*last.sends, Sent(COPY, 13, 4, 3)))


PLANTED: list[tuple[Callable[[History], None], Kind]] = [
    (plant_write_cycle, Kind.G0),
    (plant_mixed_up_transactions, Kind.G0),
    (plant_aborted_read, Kind.G1A),
    (plant_stable_offset_beyond_what_is_undecided, Kind.G1B),
    (plant_read_beyond_stable_offset, Kind.G1B),
    (plant_circle_of_reads, Kind.G1C),
    (plant_lost_write, Kind.LOST_WRITE),
    (plant_duplicate, Kind.DUPLICATE),
    (plant_torn_transaction, Kind.TORN),
    (plant_phantom, Kind.PHANTOM),
    (plant_record_elsewhere, Kind.PHANTOM),
    (plant_change, Kind.CHANGED),
    (plant_poll_skip, Kind.POLL_SKIP),
    (plant_poll_skip_of_uncommitted, Kind.POLL_SKIP),
    (plant_jump_of_a_reader, Kind.NONMONOTONIC_POLL),
    (plant_disorder_in_a_poll, Kind.NONMONOTONIC_POLL),
    (plant_disorder_of_sends, Kind.NONMONOTONIC_SEND),
    (plant_stable_offset_that_goes_back, Kind.STABLE_WENT_BACK),
    (plant_reader_that_is_not_given_all, Kind.UNSEEN),
    (plant_reader_that_is_held_back, Kind.UNSEEN),
    (plant_position_of_an_aborted_copier, Kind.OFFSET_WITHOUT_RECORDS),
    (plant_position_of_no_one, Kind.OFFSET_WITHOUT_RECORDS),
    (plant_position_that_was_not_committed, Kind.RECORDS_WITHOUT_OFFSET),
    (plant_position_that_goes_back, Kind.RECORDS_WITHOUT_OFFSET),
    (plant_second_copy, Kind.COPIED_NOT_ONCE),
    (plant_missing_copy, Kind.COPIED_NOT_ONCE),
    (plant_copy_of_what_was_aborted, Kind.COPIED_NOT_ONCE),
]


@pytest.mark.parametrize(
    ("plant", "kind"), PLANTED, ids=[plant.__name__.removeprefix("plant_") for plant, _ in PLANTED]
)
def test_what_is_planted_is_found(plant: Callable[[History], None], kind: Kind) -> None:
    history = sound()
    plant(history)
    assert kind in kinds_in(history)


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == set(Kind)


def test_cycles_of_a_graph_are_found_each_once() -> None:
    graph = {1: {2}, 2: {3}, 3: {1, 4}, 4: {5}, 5: {6}, 6: {4}, 7: {1}}
    assert sorted(sorted(cycle) for cycle in cycles_in(graph)) == [[1, 2, 3], [4, 5, 6]]


def test_a_chain_of_a_hundred_thousand_has_no_cycle() -> None:
    assert cycles_in({number: {number + 1} for number in range(100_000)}) == []
