"""One transactional id, driven without a loop: what it asks for happens when the test says so."""

import itertools
from collections.abc import Iterable
from typing import Any

from kohort.broker.core.transaction.effects import (
    Append,
    Began,
    Effect,
    Ended,
    Mark,
    Reply,
    Stuck,
    Superseded,
)
from kohort.broker.core.transaction.records import (
    DurableTransaction,
    TransactionRecord,
    TransactionTombstone,
)
from kohort.broker.core.transaction.requests import (
    AddRequest,
    ClientVersion,
    EndRequest,
    InitRequest,
    InitResult,
    TopicPartition,
)
from kohort.broker.core.transaction.states import TransactionState
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.control import ControlType

ID = "payments"
PID = 4_000
FRESH = 5_000
"""The producer id that is handed out next."""
T0 = 1_700_000_000_000
TIMEOUT_MS = 45_000
ORDERS = TopicPartition("orders", 2)
OTHER = TopicPartition("other", 0)

V1, V2 = ClientVersion.V1, ClientVersion.V2
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
S = TransactionState
STORED = [
    S.EMPTY,
    S.ONGOING,
    S.PREPARE_COMMIT,
    S.PREPARE_ABORT,
    S.COMPLETE_COMMIT,
    S.COMPLETE_ABORT,
]


def stored(state: TransactionState, epoch: int = 7, **changes: Any) -> TransactionRecord:  # noqa: ANN401
    is_open = state in {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}
    record = TransactionRecord(
        ID,
        producer_id=PID,
        previous_producer_id=PID,
        next_producer_id=-1,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=(ORDERS,) if is_open else (),
        last_update_ms=T0,
        start_ms=-1 if state is S.EMPTY else T0,
        client_version=V2,
    )
    return record._replace(**changes)


class Driven:
    """See the module. `now` is wall time, and stands still but for the test."""

    def __init__(
        self, record: TransactionRecord | None = None, last_epoch: int | None = None
    ) -> None:
        fresh = itertools.count(FRESH)
        self.core = TransactionalId(ID, lambda: next(fresh))
        if record is not None:
            self.core.apply(record)
        if last_epoch is not None:
            self.core.last_epoch = last_epoch
        self.now = T0 + 1_000
        self.log: list[DurableTransaction] = []
        self.marked: list[tuple[TopicPartition, ControlType, int]] = []
        self.replies: dict[object, Any] = {}
        self.events: list[Began | Ended | Superseded | Stuck] = []
        self.marker_errors: dict[TopicPartition, ErrorCode] = {}
        self.holds_appends = False
        self.held: list[Effect] = []
        self._tickets = itertools.count()

    # Requests: the answer, None while there is none.

    def init(self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS) -> Any:  # noqa: ANN401
        ticket = next(self._tickets)
        request = InitRequest(timeout_ms, producer_id, epoch)
        self.core.init_producer_id(request, ticket, self.now)
        return self.answer(ticket)

    def add(
        self,
        *partitions: TopicPartition,
        producer_id: int = PID,
        epoch: int = 7,
        version: ClientVersion = V1,
    ) -> Any:  # noqa: ANN401
        ticket = next(self._tickets)
        self.core.add(AddRequest(producer_id, epoch, partitions, version), ticket, self.now)
        return self.answer(ticket)

    def end(
        self,
        result: ControlType,
        *,
        producer_id: int = PID,
        epoch: int = 7,
        version: ClientVersion = V2,
    ) -> Any:  # noqa: ANN401
        ticket = next(self._tickets)
        self.core.end(EndRequest(producer_id, epoch, result, version), ticket, self.now)
        return self.answer(ticket)

    def answer(self, ticket: object) -> Any:  # noqa: ANN401
        self.carry_out()
        return self.replies.get(ticket)

    # What it asks for.

    def carry_out(self) -> None:
        """Do all of it, unless appends are held."""
        while self.core.has_effects:
            for effect in self.core.take_effects():
                self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Reply(ticket, body):
                assert ticket not in self.replies, "answered twice"
                self.replies[ticket] = body
            case Append(record):
                if self.holds_appends:
                    self.held.append(effect)
                    self.core.on_waiting()
                else:
                    self._store(record)
            case Mark(record, partitions):
                for partition in partitions:
                    error = self.marker_errors.get(partition, ErrorCode.NONE)
                    if not error:
                        self.marked.append((partition, record.result, record.producer_epoch))
                    self.core.on_marked(partition, error, self.now)
            case _:
                self.events.append(effect)

    def _store(self, record: DurableTransaction) -> None:
        self.log.append(record)
        self.core.on_appended(self.now)

    def release(self) -> None:
        """What is held becomes durable, and what follows as well, unless that is held."""
        held, self.held = self.held, []
        for effect in held:
            assert isinstance(effect, Append)
            self._store(effect.record)
        self.carry_out()

    def fail(self) -> None:
        """What is held was not written."""
        self.held = []
        self.core.on_append_failed()
        self.carry_out()

    # Looks.

    @property
    def record(self) -> TransactionRecord:
        assert self.core.record is not None
        return self.core.record

    @property
    def state(self) -> TransactionState:
        return self.record.state

    @property
    def producer(self) -> tuple[int, int]:
        return self.record.producer_id, self.record.producer_epoch

    @property
    def states(self) -> list[TransactionState]:
        """States that were written, in order."""
        return [S.DEAD if isinstance(one, TransactionTombstone) else one.state for one in self.log]


def pending(state: TransactionState) -> Driven:
    """An id with a transition under way."""
    driven = Driven(stored(state))
    driven.holds_appends = True
    if state is S.ONGOING:
        driven.add(OTHER)
    elif state.is_idle:
        driven.init()
    else:
        driven.core.complete(driven.now)
        driven.carry_out()
    assert driven.core.is_pending
    return driven


def failed(code: ErrorCode) -> InitResult:
    """What InitProducerId and EndTxn answer with an error."""
    return InitResult(code, -1, -1)


def given(producer_id: int, epoch: int) -> InitResult:
    """What they answer without one."""
    return InitResult(ErrorCode.NONE, producer_id, epoch)


def replayed(log: Iterable[DurableTransaction]) -> TransactionalId:
    """The id as a start makes it of these records."""
    core = TransactionalId(ID, lambda: -1)
    for record in log:
        core.apply(record)
    return core
