"""Judges a history: which anomalies are in it. Pure; see README.md for what each rule rests on."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.histories.anomalies import Anomaly, Kind
from tests.histories.cycles import cycles_in
from tests.histories.history import History, Poll, Sent, Transaction, TransactionOutcome


def check(history: History) -> list[Anomaly]:
    """Every anomaly; none for a history that a broker may make."""
    known = Known(history)
    return [
        *_places(history, known),
        *_outcomes(history, known),
        *_aborted_reads(history, known),
        *_reading(history, known),
        *_stable_offsets(history, known),
        *_sending(history),
        *_cycles(history, known),
        *_unseen(history, known),
        *_positions(history, known),
        *_copies(history, known),
    ]


class Known:
    """What all polls together tell."""

    def __init__(self, history: History) -> None:
        self.senders: dict[int, tuple[Transaction, Sent]] = {
            sent.value: (transaction, sent)
            for transaction in history.transactions
            for sent in transaction.sends
        }
        self.by_place: dict[tuple[int, int], set[int]] = defaultdict(set)
        """Values by log and offset."""
        self.places: dict[int, set[tuple[int, int]]] = defaultdict(set)
        """The same by value."""
        self.committed: set[int] = set()
        """Values that a reader of committed records has got."""
        everything: dict[int, set[int]] = defaultdict(set)
        visible: dict[int, set[int]] = defaultdict(set)
        for poll in history.polls:
            log = poll.log
            for offset, value in poll.records:
                self.by_place[log, offset].add(value)
                self.places[value].add((log, offset))
                everything[log].add(offset)
                if poll.is_committed:
                    self.committed.add(value)
                    visible[log].add(offset)
        self._everything = {log: sorted(offsets) for log, offsets in everything.items()}
        self._visible = {log: sorted(offsets) for log, offsets in visible.items()}

    def offsets(self, log: int, *, is_committed: bool) -> list[int]:
        """All that were read from a log, by readers of that level, in order."""
        return (self._visible if is_committed else self._everything).get(log, [])

    def took_place(self, transaction: Transaction) -> bool:
        """Whether it was committed, by what its producer knows or by what can be read."""
        if transaction.outcome is TransactionOutcome.UNKNOWN:
            return any(sent.value in self.committed for sent in transaction.sends)
        return transaction.outcome is TransactionOutcome.COMMITTED


def _places(history: History, known: Known) -> Iterator[Anomaly]:
    """Every record is where it was sent to, there alone, and stays."""
    for (log, offset), values in known.by_place.items():
        if len(values) > 1:
            yield Anomaly(Kind.CHANGED, f"offset {offset} of {log} holds {sorted(values)}")
    for value, places in known.places.items():
        if len(places) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value} is at {sorted(places)}")
        if value not in known.senders:
            yield Anomaly(Kind.PHANTOM, f"{value} at {sorted(places)} was never sent")
            continue
        _, sent = known.senders[value]
        for log, offset in places:
            if log != sent.log or sent.offset not in {None, offset}:
                what = f"{value} is at {offset} of {log}, and was sent to {sent}"
                yield Anomaly(Kind.PHANTOM, what)


def _outcomes(history: History, known: Known) -> Iterator[Anomaly]:
    """A transaction is there or not there, as its producer was told."""
    for transaction in history.transactions:
        if transaction.outcome is TransactionOutcome.ABORTED:
            continue
        missing = [one.value for one in transaction.sends if one.value not in known.committed]
        if missing and len(missing) < len(transaction.sends):
            yield Anomaly(Kind.TORN, f"{missing} of {transaction} cannot be read")
        elif missing and transaction.outcome is TransactionOutcome.COMMITTED:
            yield Anomaly(Kind.LOST_WRITE, f"nothing of {transaction} can be read")


def _aborted_reads(history: History, known: Known) -> Iterator[Anomaly]:
    for transaction in history.transactions:
        if transaction.outcome is not TransactionOutcome.ABORTED:
            continue
        read = [one.value for one in transaction.sends if one.value in known.committed]
        if read:
            yield Anomaly(Kind.G1A, f"{read} of {transaction}")


def _reading(history: History, known: Known) -> Iterator[Anomaly]:
    """A reader gets all that is there, in order, and goes on where it was."""
    at: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        who = f"{poll.reader} in {poll.log}, polling from {poll.start} to {poll.end}"
        expected = at.get((poll.reader, poll.log), poll.start)
        at[poll.reader, poll.log] = poll.end
        got = [offset for offset, _ in poll.records]
        is_within = not got or poll.start <= got[0] <= got[-1] < poll.end
        if poll.start != expected or poll.end < poll.start:
            yield Anomaly(Kind.NONMONOTONIC_POLL, f"{who}, was at {expected}")
        if not is_within or any(after <= before for before, after in pairwise(got)):
            yield Anomaly(Kind.NONMONOTONIC_POLL, f"{who}: {got}")
        skipped = _between(known, poll) - set(got)
        if skipped:
            yield Anomaly(Kind.POLL_SKIP, f"{who}, not given {sorted(skipped)}")


def _between(known: Known, poll: Poll) -> set[int]:
    """What there is where a poll has looked."""
    offsets = known.offsets(poll.log, is_committed=poll.is_committed)
    return set(offsets[bisect_left(offsets, poll.start) : bisect_left(offsets, poll.end)])


def _stable_offsets(history: History, known: Known) -> Iterator[Anomaly]:
    """The last stable offset never goes back, and never passes what is undecided."""
    last: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        who = f"{poll.reader} in {poll.log}"
        before = last.get((poll.reader, poll.log), poll.stable)
        last[poll.reader, poll.log] = poll.stable
        if poll.stable < before:
            yield Anomaly(Kind.STABLE_WENT_BACK, f"{who}: {before}, then {poll.stable}")
        if poll.is_committed and poll.records and poll.records[-1][0] >= poll.stable:
            what = f"{who} was given {poll.records[-1][0]}, beyond {poll.stable}"
            yield Anomaly(Kind.G1B, what)
    told = _stable_by_time(history)
    for transaction in history.transactions:
        if not known.took_place(transaction):
            continue
        for log, offsets in _offsets_of(transaction, known).items():
            times, stable = told.get(log, ([], []))
            count = bisect_left(times, transaction.asked_s)
            if count and stable[count - 1] > min(offsets):
                what = (
                    f"{stable[count - 1]} was stable in {log}, and then was asked for {transaction}"
                )
                yield Anomaly(Kind.G1B, what)


def _stable_by_time(history: History) -> dict[int, tuple[list[float], list[int]]]:
    """By log, the times of answers, and the highest last stable offset that was told until then."""
    told: dict[int, tuple[list[float], list[int]]] = {}
    for poll in sorted(history.polls, key=lambda poll: poll.answered_s):
        times, stable = told.setdefault(poll.log, ([], []))
        times.append(poll.answered_s)
        stable.append(max(poll.stable, stable[-1] if stable else 0))
    return told


def _offsets_of(transaction: Transaction, known: Known) -> dict[int, list[int]]:
    """By log, where its records are, as far as anybody knows."""
    found: dict[int, list[int]] = defaultdict(list)
    for sent in transaction.sends:
        if sent.offset is not None:
            found[sent.log].append(sent.offset)
        for log, offset in known.places.get(sent.value, ()):
            found[log].append(offset)
    return found


def _sending(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, int], int] = {}
    for transaction in history.transactions:
        for sent in transaction.sends:
            if sent.offset is None:
                continue
            before = last.get((transaction.producer, sent.log), -1)
            last[transaction.producer, sent.log] = sent.offset
            if sent.offset <= before:
                what = f"{sent.value} of {transaction} at {sent.offset}, behind {before}"
                yield Anomaly(Kind.NONMONOTONIC_SEND, what)


def _cycles(history: History, known: Known) -> Iterator[Anomaly]:
    """No transaction follows itself.

    Those of different ids may well lie in two logs in different orders: Kafka never promised more
    than that each is whole. Those of one id follow each other, whichever producer wrote them.
    """
    transactions = history.transactions
    numbers = {
        sent.value: number
        for number, transaction in enumerate(transactions)
        if known.took_place(transaction)
        for sent in transaction.sends
    }
    writes: dict[int, set[int]] = defaultdict(set)
    last: dict[tuple[str, int], int] = {}
    for (log, _), values in sorted(known.by_place.items()):
        for number in {numbers[value] for value in values if value in numbers}:
            before = last.get((transactions[number].transactional_id, log), number)
            last[transactions[number].transactional_id, log] = number
            if before != number:
                writes[before].add(number)
    in_writes = cycles_in(writes)
    yield from _anomalies(Kind.G0, in_writes, transactions)
    flow: dict[int, set[int]] = defaultdict(set)
    for number, followers in writes.items():
        flow[number] |= followers
    for number, transaction in enumerate(transactions):
        if not known.took_place(transaction):
            continue
        for value in transaction.polled:
            if numbers.get(value, number) != number:
                flow[numbers[value]].add(number)
    told = {frozenset(cycle) for cycle in in_writes}
    longer = [cycle for cycle in cycles_in(flow) if frozenset(cycle) not in told]
    yield from _anomalies(Kind.G1C, longer, transactions)


def _anomalies(
    kind: Kind, cycles: Iterable[list[int]], transactions: list[Transaction]
) -> Iterator[Anomaly]:
    for cycle in cycles:
        yield Anomaly(kind, "; ".join(str(transactions[number]) for number in sorted(cycle)[:5]))


def _unseen(history: History, known: Known) -> Iterator[Anomaly]:
    """A reader that is there to the end gets there, and has got everything."""
    got: dict[str, set[int]] = defaultdict(set)
    levels: dict[str, bool] = {}
    reached: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        if poll.reader in history.lasting:
            got[poll.reader].update(value for _, value in poll.records)
            levels[poll.reader] = poll.is_committed
            reached[poll.reader, poll.log] = poll.end
    due = {
        sent.value
        for transaction in history.transactions
        if known.took_place(transaction)
        for sent in transaction.sends
        if sent.value in known.places
    }
    for reader in sorted(history.lasting):
        for log, end in history.ends.items():
            if reached.get((reader, log), 0) < end:
                what = f"{reader} is at {reached.get((reader, log))} in {log}, which ends at {end}"
                yield Anomaly(Kind.UNSEEN, what)
        missing = due - got[reader]
        if missing:
            yield Anomaly(Kind.UNSEEN, f"{reader} has not got {sorted(missing)[:10]}")


def _positions(history: History, known: Known) -> Iterator[Anomaly]:
    """A copier's position and its copies are committed together."""
    ends = {
        (transaction.move.log, transaction.move.end): transaction
        for transaction in history.transactions
        if transaction.move is not None and known.took_place(transaction)
    }
    last: dict[int, int] = {}
    for log, position in history.observed:
        before = last.get(log, -1)
        last[log] = position
        if position < before:
            what = f"position {before} in {log} is gone, now {position}"
            yield Anomaly(Kind.RECORDS_WITHOUT_OFFSET, what)
        if position >= 0 and (log, position) not in ends:
            what = f"position {position} in {log}, which no copy has committed"
            yield Anomaly(Kind.OFFSET_WITHOUT_RECORDS, what)
    for log, end in sorted(ends):
        if end > last.get(log, -1):
            what = f"position {end} in {log} of {ends[log, end]}"
            yield Anomaly(Kind.RECORDS_WITHOUT_OFFSET, what)


def _copies(history: History, known: Known) -> Iterator[Anomaly]:
    """Every committed record of a log that is copied has one committed copy."""
    copies: Counter[tuple[int, int]] = Counter()
    for transaction in history.transactions:
        if transaction.move is None or not known.took_place(transaction):
            continue
        log = transaction.move.log
        copies.update((log, one.source) for one in transaction.sends if one.source is not None)
    for log in sorted({log for log, _ in history.observed}):
        for offset in known.offsets(log, is_committed=True):
            if not copies[log, offset]:
                yield Anomaly(Kind.COPIED_NOT_ONCE, f"no copy of {offset} in {log}")
    for (log, offset), count in copies.items():
        if count > 1:
            yield Anomaly(Kind.COPIED_NOT_ONCE, f"{count} copies of {offset} in {log}")
        if known.by_place.get((log, offset), set()).isdisjoint(known.committed):
            yield Anomaly(Kind.COPIED_NOT_ONCE, f"a copy of {offset} in {log}, not committed")
