"""Work on the broker while it is disturbed: writers, copiers and readers, a thread each."""

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from kohort.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.protocol.records.record import Record
from tests.histories.history import (
    History,
    Move,
    Observed,
    Poll,
    Sent,
    Transaction,
    TransactionOutcome,
)
from tests.histories.links import Link, Links, LostError, RefusedError
from tests.histories.logs import ALL, PARTITIONS, WRITTEN, copy_of, place_of
from tests.histories.producer import Flow, Producer
from tests.histories.reader import Reader

KEYS: Final = 20
GROUP: Final = "copiers"
TIMEOUTS_MS: Final = (1_500, 10_000, 60_000)
"""How long transactions may take: some end while their producer dallies, or by a clock's step."""
COPIED_MAX: Final = 30
"""Records that a copier takes at once, so that its transactions are many."""
_OFFSET_FETCH: Final = 7
"""The first version that is told of positions that are undecided (KIP-447)."""


class Notes:
    """The history while it is made; used by all threads."""

    def __init__(self) -> None:
        self.history = History()
        self._values = itertools.count(1)
        self._lives = itertools.count(1)

    def new_value(self) -> int:
        return next(self._values)

    def new_name(self, of: str) -> str:
        """A name for one life of it."""
        return f"{of}/{next(self._lives)}"


class Worker(ABC):
    """A thread that works until it is told to stop. Its error is raised then."""

    def __init__(self, name: str, links: Links, notes: Notes, chance: random.Random) -> None:
        self.name = name
        self.links = links
        self.notes = notes
        self.chance = chance
        self.stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - raised by `join`.
            self._error = error

    @abstractmethod
    def work(self) -> None:
        """Until `stopping` is set."""


class Undertaking:
    """One transaction while it goes on; what becomes of it is noted in any case."""

    def __init__(self, producer: Producer, life: str) -> None:
        self.producer = producer
        self.life = life
        self.polled: list[int] = []
        self.move: Move | None = None
        self.outcome = TransactionOutcome.ABORTED
        """So it is until a commit is asked for."""
        self._sends: dict[int, Sent] = {}
        """By value."""
        self._asked_s = 0.0

    def send(self, sends: Sequence[Sent], key_of: dict[int, bytes]) -> None:
        """Raises RefusedError, LostError."""
        by_log: dict[int, list[Sent]] = {}
        for sent in sends:
            by_log.setdefault(sent.log, []).append(sent)
            self._sends[sent.value] = sent
        now_ms = time.time_ns() // 1_000_000
        batches = {
            log: [
                Record(b"%d" % one.value, key=key_of.get(one.value), timestamp=now_ms)
                for one in several
            ]
            for log, several in by_log.items()
        }
        bases = self.producer.send(batches)
        for log, several in by_log.items():
            for delta, sent in enumerate(several):
                self._sends[sent.value] = sent._replace(offset=bases[log] + delta)

    def commit(self) -> None:
        """Raises RefusedError, LostError."""
        self.outcome = TransactionOutcome.UNKNOWN
        self._asked_s = time.monotonic()
        try:
            self.producer.end(committed=True)
        except RefusedError as refused:
            if not refused.was_lost:
                self.outcome = TransactionOutcome.ABORTED
            raise
        self.outcome = TransactionOutcome.COMMITTED

    def told(self) -> Transaction:
        """What its producer knows."""
        return Transaction(
            self.producer.transactional_id,
            self.life,
            self.outcome,
            tuple(self._sends.values()),
            tuple(self.polled),
            self.move,
            self._asked_s,
        )


class Writer(Worker):
    """Appends to lists in transactions, under ids of its own and now and then under another's."""

    def __init__(
        self,
        name: str,
        links: Links,
        notes: Notes,
        chance: random.Random,
        *,
        flow: Flow,
        own_ids: Sequence[str],
        all_ids: Sequence[str],
    ) -> None:
        super().__init__(name, links, notes, chance)
        self.twins = 0
        self._flow = flow
        self._own_ids = own_ids
        self._all_ids = all_ids
        self._producers: dict[str, tuple[Producer, str]] = {}
        log = chance.choice(WRITTEN)
        self._reader = Reader(
            links, notes.new_name(name), {log: 0}, random.Random(chance.random()), is_committed=True
        )

    def work(self) -> None:
        while not self.stopping.is_set():
            self._work_once()
            self.stopping.wait(self.chance.uniform(0, 0.02))
        for producer, _ in self._producers.values():
            producer.close()
        self._reader.close()

    def _work_once(self) -> None:
        transactional_id = self.chance.choice(self._own_ids)
        if self.chance.random() < 0.02:
            self.twins += 1
            transactional_id = self.chance.choice(self._all_ids)
        try:
            producer, life = self._producer(transactional_id)
        except (RefusedError, LostError):
            return
        undertaking = Undertaking(producer, life)
        try:
            is_left_open = self._undertake(undertaking)
        except (RefusedError, LostError):
            is_left_open = True
        self.notes.history.transactions.append(undertaking.told())
        if is_left_open:
            self._producers.pop(transactional_id)[0].close()

    def _producer(self, transactional_id: str) -> tuple[Producer, str]:
        if transactional_id not in self._producers:
            timeout_ms = self.chance.choice(TIMEOUTS_MS)
            producer = Producer(self.links, transactional_id, self._flow, timeout_ms=timeout_ms)
            life = self.notes.new_name(f"{self.name}/{transactional_id}")
            self._producers[transactional_id] = (producer, life)
        return self._producers[transactional_id]

    def _undertake(self, undertaking: Undertaking) -> bool:
        """Whether it was left open, for time or a successor to end."""
        chance = self.chance
        undertaking.producer.begin()
        for _ in range(chance.choice((1, 1, 2, 3))):
            keys = [chance.randrange(KEYS) for _ in range(chance.choice((1, 2, 3, 5)))]
            sends = [Sent(key % PARTITIONS, self.notes.new_value()) for key in keys]
            key_of = {sent.value: b"%d" % key for sent, key in zip(sends, keys, strict=True)}
            undertaking.send(sends, key_of)
            if chance.random() < 0.2:
                polls = self._reader.poll(wait_ms=1)
                self.notes.history.polls += polls
                undertaking.polled += (value for poll in polls for _, value in poll.records)
        dally = chance.random()
        if dally < 0.01:
            self.stopping.wait(chance.uniform(0.5, 3))
        elif dally < 0.3:
            time.sleep(chance.uniform(0, 0.05))
        choice = chance.random()
        if choice < 0.04:
            return True
        if choice < 0.25:
            undertaking.producer.end(committed=False)
        else:
            undertaking.commit()
        return False


class Copier(Worker):
    """Copies a log, and commits its position in the transaction of the copies.

    Each life begins where the group is: at what the last transaction of its kind has committed.
    """

    def __init__(
        self, name: str, links: Links, notes: Notes, chance: random.Random, *, flow: Flow, log: int
    ) -> None:
        super().__init__(name, links, notes, chance)
        self.log = log
        self._flow = flow
        self._link = Link(links)
        self._until: int | None = None

    def drain(self, end: int) -> None:
        """Go on to this offset, and end there."""
        self._until = end

    def note_position(self) -> None:
        """What is committed now; only while it does not work."""
        self._committed_position()
        self._link.close()

    def work(self) -> None:
        while not self._is_done(-1):
            try:
                producer = Producer(self.links, f"{self.name}.id", self._flow, timeout_ms=60_000)
            except (RefusedError, LostError):
                continue
            try:
                self._live(producer)
            except (RefusedError, LostError):
                pass
            finally:
                producer.close()
        self._link.close()

    def _is_done(self, position: int) -> bool:
        return self.stopping.is_set() or (self._until is not None and position >= self._until)

    def _live(self, producer: Producer) -> None:
        life = self.notes.new_name(self.name)
        position = max(self._committed_position(), 0)
        while not self._is_done(position):
            position = self._copy(producer, life, position)
        if not self.stopping.is_set():
            self.stop()

    def _committed_position(self) -> int:
        topic, index = place_of(self.log)
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[index])],
            require_stable=True,
        )
        answer, _ = self._link.insist(
            request,
            _OFFSET_FETCH,
            lambda answer: int(answer.error_code or answer.topics[0].partitions[0].error_code),
        )
        position = int(answer.topics[0].partitions[0].committed_offset)
        self.notes.history.observed.append(Observed(self.log, position))
        return position

    def _copy(self, producer: Producer, life: str, position: int) -> int:
        """The position that is committed then."""
        chance = self.chance
        reader = Reader(
            self.links,
            self.notes.new_name(f"{self.name} reading"),
            {self.log: position},
            random.Random(chance.random()),
            is_committed=True,
        )
        while not self._is_done(position):
            polls = reader.poll()
            self.notes.history.polls += polls
            originals = [record for poll in polls for record in poll.records]
            end = reader.positions[self.log]
            if not originals:
                if not polls:
                    self.stopping.wait(0.02)
                if self._until is not None and end >= self._until:
                    # Nothing but markers: there is nothing to commit with.
                    self.stop()
                continue
            undertaking = Undertaking(producer, life)
            undertaking.move = Move(self.log, position, end)
            undertaking.polled = [value for _, value in originals]
            try:
                is_committed = self._undertake(undertaking, originals)
            finally:
                self.notes.history.transactions.append(undertaking.told())
                reader.close()
            return end if is_committed else position
        reader.close()
        return position

    def _undertake(self, undertaking: Undertaking, originals: list[tuple[int, int]]) -> bool:
        """Whether it was committed."""
        assert undertaking.move is not None
        undertaking.producer.begin()
        sends = [
            Sent(copy_of(self.log), self.notes.new_value(), source=offset)
            for offset, _ in originals
        ]
        is_position_first = self.chance.random() < 0.5
        if is_position_first:
            undertaking.producer.send_position(GROUP, self.log, undertaking.move.end)
        for start in range(0, len(sends), COPIED_MAX):
            undertaking.send(sends[start : start + COPIED_MAX], {})
        if not is_position_first:
            undertaking.producer.send_position(GROUP, self.log, undertaking.move.end)
        if self._until is None and self.chance.random() < 0.15:
            undertaking.producer.end(committed=False)
            return False
        if self._until is None and self.chance.random() < 0.02:
            # Dies: its successor has to wait for what it has left open.
            raise LostError("death")
        undertaking.commit()
        return True


class Watcher(Worker):
    """Reads everything of one isolation level, to the end."""

    def __init__(
        self, name: str, links: Links, notes: Notes, chance: random.Random, *, is_committed: bool
    ) -> None:
        super().__init__(name, links, notes, chance)
        self.reader = Reader(
            links,
            name,
            dict.fromkeys(ALL, 0),
            random.Random(chance.random()),
            is_committed=is_committed,
        )

    def work(self) -> None:
        while not self.stopping.is_set():
            polls: list[Poll] = self.reader.poll(wait_ms=50)
            self.notes.history.polls += polls
            if not polls:
                self.stopping.wait(0.01)
        self.reader.close()

    def wait_at(self, ends: Mapping[int, int], timeout_s: float) -> None:
        """Return when it has got there, or when the time is over: the checker will see."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and any(
            self.reader.positions[log] < end for log, end in ends.items()
        ):
            time.sleep(0.02)
