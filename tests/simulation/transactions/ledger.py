"""What clients have asked for and been told, in order, and what therefore must be on the disk.

Every fact has a number. What a disk is held against is what was known when it was taken, so that
one history serves for as many disks as one likes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kohort.groups.requests import TopicPartition

NEVER: Final = 1 << 62
COMPACTED: Final = "c"
DELETED: Final = "d"
"""The topic that goes and comes; what was in it need not be there."""


class Seen(NamedTuple):
    """A record that a reader of committed records gets."""

    offset: int
    key: bytes | None
    value: str


View: TypeAlias = Mapping[TopicPartition, Sequence[Seen]]
Positions: TypeAlias = Mapping[str, int]
"""Committed positions, by group; each transactional id has one of its own."""


@dataclass(slots=True)
class Sent:
    place: TopicPartition
    key: bytes | None
    value: str
    acked: int = NEVER
    offset: int = -1


@dataclass(slots=True, eq=False)
class Transaction:
    """One, as its client sees it. Times are numbers of facts."""

    number: int
    owner: str
    """The transactional id, and the group whose position it commits."""
    flow: int
    producer: tuple[int, int] = (-1, -1)
    records: list[Sent] = field(default_factory=list)
    position_acked: int = NEVER
    """When its position was accepted."""
    commit_asked: int = NEVER
    committed: int = NEVER
    aborted: int = NEVER

    @property
    def position(self) -> int:
        """What it commits for the group: positions rise from one transaction to the next."""
        return self.number


class Ledger:
    """All transactions, and who may act for an id."""

    def __init__(self) -> None:
        self.now = 0
        self.transactions: list[Transaction] = []
        self.by_value: dict[str, tuple[Transaction, Sent]] = {}
        self.counts: Counter[str] = Counter()
        self._given: dict[tuple[int, int], object] = {}
        self._owners: dict[str, tuple[object, int]] = {}

    def note(self, what: str) -> int:
        self.now += 1
        self.counts[what] += 1
        return self.now

    # Producers.

    def note_given(self, client: object, transactional_id: str, producer: tuple[int, int]) -> None:
        """A client was told its producer id and epoch: no other client ever was or will be."""
        holder = self._given.setdefault(producer, client)
        assert holder is client, f"{producer} of {transactional_id} was given twice"
        if self._owners.get(transactional_id, (None, 0))[0] is not client:
            self._owners[transactional_id] = client, self.note("owner")

    def check_allowed(self, client: object, transactional_id: str, asked: int, what: str) -> None:
        """A client's request, sent at `asked`, has had an effect: it must not have been fenced."""
        owner, since = self._owners[transactional_id]
        assert owner is client or asked < since, f"{what} of a fenced client of {transactional_id}"

    def forget(self) -> None:
        """The power went while nothing was forced to disk: nothing that was told need be so."""
        self.transactions.clear()
        self.by_value.clear()
        self._given.clear()
        self._owners.clear()

    # Transactions.

    def begin(self, owner: str, flow: int) -> Transaction:
        one = Transaction(self.note("begun"), owner, flow)
        self.transactions.append(one)
        return one

    def send(self, one: Transaction, place: TopicPartition, key: bytes | None) -> Sent:
        sent = Sent(place, key, f"{one.number}.{len(one.records)}")
        one.records.append(sent)
        self.by_value[sent.value] = one, sent
        return sent

    # What readers see.

    def check_lawful(self, view: View, upto: int) -> None:
        """Nothing is read that was aborted, or that no client has asked to commit (P2)."""
        for place, seen in view.items():
            for value, times in Counter(one.value for one in seen).items():
                found = self.by_value.get(value)
                if found is None:
                    continue
                transaction, _ = found
                assert transaction.aborted > upto, f"{value} in {place} is read, and was aborted"
                assert transaction.commit_asked <= upto, f"{value} in {place} is read, undecided"
                assert times == 1, f"{value} in {place} is read {times} times"

    def check(self, view: View, positions: Positions, upto: int) -> None:
        """All that was told by fact `upto` is so (P1, P2, P8, P11)."""
        self.check_lawful(view, upto)
        values = {place: {one.value for one in seen} for place, seen in view.items()}
        latest = {
            (place, one.key): one.offset for place, seen in view.items() for one in seen
        }  # fmt: skip
        seen_of: dict[int, bool] = {}
        for one in self.transactions:
            if one.number > upto:
                break
            fates = {
                sent.value in values.get(sent.place, ())
                for sent in one.records
                if sent.acked <= upto and _must_stay(sent, latest)
            }
            if one.committed <= upto:
                assert fates <= {True}, f"{one} is committed, and records are missing"
            assert len(fates) < 2, f"{one} is torn"
            if fates:
                seen_of[one.number] = fates.pop()
        self._check_order(view)
        for owner in {one.owner for one in self.transactions}:
            self._check_position(owner, positions.get(owner, 0), upto, seen_of)

    def _check_order(self, view: View) -> None:
        for place, seen in view.items():
            last: dict[str, tuple[int, int]] = {}
            for one in seen:
                found = self.by_value.get(one.value)
                if found is None:
                    continue
                owner = found[0].owner
                number, _, part = one.value.partition(".")
                order = int(number), int(part)
                assert last.get(owner, (-1, -1)) < order, f"{one} in {place} is out of order"
                last[owner] = order

    def _check_position(
        self, owner: str, position: int, upto: int, seen_of: Mapping[int, bool]
    ) -> None:
        """A position is committed with its records, or not at all."""
        own = [one for one in self.transactions if one.owner == owner and one.number <= upto]
        with_position = [one for one in own if one.position_acked <= upto]
        floor = max((one.position for one in with_position if one.committed <= upto), default=0)
        assert position >= floor, f"position {floor} of {owner} is lost, there is {position}"
        for one in own:
            if one.position == position:
                assert one.aborted > upto, f"position {position} was aborted"
                assert one.commit_asked <= upto, f"position {position} is undecided"
                assert seen_of.get(one.number, True), f"{one}: a position without its records"
        for one in with_position:
            if one.position > position:
                assert not seen_of.get(one.number, False), f"{one}: records without its position"


def _must_stay(sent: Sent, latest: Mapping[tuple[TopicPartition, bytes | None], int]) -> bool:
    """Whether a reader must find the record if its transaction was committed."""
    if sent.place.topic == DELETED:
        return False
    if sent.place.topic != COMPACTED:
        return True
    # Compaction may have taken it for a later value of its key.
    return latest.get((sent.place, sent.key), -1) <= sent.offset
