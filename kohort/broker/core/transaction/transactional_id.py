"""One transactional id: its producer, its transaction, and the record that is being written.

A step judges a request by what is durable, and asks for one append; while that is under way every
request that would change the id is told CONCURRENT_TRANSACTIONS. State changes in `apply` alone,
when its record is durable. If the append fails, nothing has happened.

The end of a transaction is three such changes: Prepare*, which is the decision; a marker in every
partition; Complete*. The request for the end is answered when all markers are durable, or at
once after the decision if a partition cannot take its marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kohort.broker.core.transaction import records
from kohort.broker.core.transaction.effects import (
    Append,
    Began,
    Effect,
    EndCause,
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
    last_epoch_of,
)
from kohort.broker.core.transaction.requests import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddRequest,
    Client,
    ClientVersion,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    Ticket,
    TopicPartition,
    TransactionConfig,
)
from kohort.broker.core.transaction.rules import (
    Verdict,
    check_producer,
    deadline_ms,
    is_expired,
    is_overdue,
    judge_add,
    judge_end,
    judge_init,
)
from kohort.broker.core.transaction.states import LEGAL_PREVIOUS, TransactionState
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""Tells a client to try again: the log could not be written."""

_MARKED: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The partition has its marker, or is gone."""
_SUPERSEDED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class _Pending(NamedTuple):
    """A transition that is being written."""

    state: TransactionState
    """Where it leads, or PREPARE_EPOCH_FENCE on the way to PREPARE_ABORT."""
    record: DurableTransaction
    last_epoch: int = NO_PRODUCER_EPOCH
    ticket: Ticket | None = None
    """Waits for this record."""


class _Ending(NamedTuple):
    """A request that the transaction ends, or the broker's own decision that it does."""

    cause: EndCause
    ticket: Ticket | None = None
    """Waits for the end; given back as soon as it is answered."""
    request: InitRequest | None = None
    """What the ticket wants in truth: the fence is only on the way to it."""


_UNASKED: Final = _Ending(EndCause.START)
"""No request ends the transaction. One that ends all the same was decided before the start."""


class TransactionalId:
    """See the module. All times are wall time, because deadlines have to survive restarts."""

    __slots__ = (
        "_awaited",
        "_effects",
        "_ending",
        "_new_producer_id",
        "_partitions",
        "_pending",
        "_unmarked",
        "client",
        "last_epoch",
        "log_partition",
        "record",
        "transactional_id",
    )

    def __init__(
        self, transactional_id: str, new_producer_id: Callable[[], int], *, log_partition: int = 0
    ) -> None:
        """`new_producer_id` gives every id once, and may raise KafkaError."""
        self.transactional_id = transactional_id
        self.log_partition = log_partition
        """Partition of the transactions' log that the id lives in: noted for the shell."""
        self.record: TransactionRecord | None = None
        """What is durable; None before the first record and after the tombstone."""
        self.last_epoch = NO_PRODUCER_EPOCH
        """The producer's epoch before this one, with which it may still ask for this one."""
        self.client: Client | None = None
        """The last to initialize the id or add to its transaction; None: no one since the start."""
        self._new_producer_id = new_producer_id
        self._partitions: frozenset[TopicPartition] = frozenset()
        """What `record` lists, to look one up."""
        self._pending: _Pending | None = None
        self._ending = _UNASKED
        self._unmarked: dict[TopicPartition, None] | None = None
        """Partitions that have no marker yet, in Prepare*; else None."""
        self._awaited = 0
        """Markers that have been asked for, and whose outcome is open."""
        self._effects: list[Effect] | None = None
        """An empty list would cost each of very many ids more than None does."""

    # State.

    def apply(self, record: DurableTransaction) -> None:
        """The record is durable: the only way in which state changes, live and on replay."""
        if isinstance(record, TransactionTombstone):
            self.record = None
            self._partitions = frozenset()
            self.last_epoch = NO_PRODUCER_EPOCH
            return
        self.record = record
        self._partitions = frozenset(record.partitions)
        self.last_epoch = last_epoch_of(record)
        self._unmarked = dict.fromkeys(record.partitions) if record.state.is_prepared else None

    @property
    def is_pending(self) -> bool:
        """Whether a transition is being written."""
        return self._pending is not None

    @property
    def is_busy(self) -> bool:
        """Whether something is on its way that ends by itself: a record, or markers."""
        return self._pending is not None or self._awaited > 0

    @property
    def is_adding(self) -> bool:
        """Whether what is being written adds partitions, and the transaction goes on."""
        return self._pending is not None and self._pending.state is TransactionState.ONGOING

    @property
    def is_gone(self) -> bool:
        """Whether nothing is known of the id and nothing is on its way."""
        return self.record is None and self._pending is None

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction, or one of which markers are missing."""
        return self.record is not None and not self.record.state.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether it may be forgotten."""
        return self.record is not None and self.record.state.is_idle and self._pending is None

    @property
    def deadline_ms(self) -> int | None:
        """The wall time at which `abort_overdue` is to be called; None if there is none."""
        return None if self.record is None else deadline_ms(self.record)

    @property
    def unmarked(self) -> tuple[TopicPartition, ...]:
        """Partitions of the transaction; in Prepare* only those without a marker."""
        if self.record is None:
            return ()
        return self.record.partitions if self._unmarked is None else tuple(self._unmarked)

    @property
    def has_effects(self) -> bool:
        """Is there something to take?"""
        return self._effects is not None

    def take_effects(self) -> list[Effect]:
        """What the steps since the last call ask for, in order."""
        effects, self._effects = self._effects or [], None
        return effects

    # Requests. Each ticket is answered by one Reply, now or later.

    def init_producer_id(self, request: InitRequest, ticket: Ticket, wall_ms: int) -> None:
        """InitProducerId that `check_init` has passed; answered with an `InitResult`."""
        verdict = judge_init(self.record, self.last_epoch, request, is_pending=self.is_pending)
        if isinstance(verdict, ErrorCode):
            self._reply(ticket, InitResult(verdict))
        elif verdict is Verdict.FENCE:
            self._fence(_Ending(EndCause.FENCE, ticket, request), wall_ms)
        else:
            self._initialize(verdict, request, ticket, wall_ms)

    def add(self, request: AddRequest, ticket: Ticket, wall_ms: int) -> None:
        """Additions of any kind; answered with an `ErrorCode`."""
        verdict = judge_add(
            self.record,
            request.producer_id,
            request.producer_epoch,
            is_pending=self.is_pending,
            are_all_in=self._partitions.issuperset(request.partitions),
        )
        if isinstance(verdict, ErrorCode):
            self._reply(ticket, verdict)
        elif verdict is Verdict.NOTHING_TO_WRITE:
            self._reply(ticket, ErrorCode.NONE)
        else:
            assert self.record is not None
            self.client = request.client
            record = records.added(self.record, request.partitions, request.client_version, wall_ms)
            self._write(record, self.last_epoch, ticket)

    def verify(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        *,
        adds: bool,
    ) -> ErrorCode:
        """Whether a batch may be appended to these partitions.

        Args:
            adds: the caller adds what is missing before it appends.

        Returns:
            TRANSACTION_ABORTABLE where a partition is missing and is not added;
            CONCURRENT_TRANSACTIONS while the transaction ends, or while what is being written
            decides whether the partition is in.
        """
        are_in = self._partitions.issuperset(partitions)
        is_changing = self.is_pending and not (self.is_adding and are_in)
        if adds and is_changing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        error = check_producer(self.record, producer_id, producer_epoch)
        if error or self.record is None:
            return error
        if is_changing or self.record.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if adds or are_in else ErrorCode.TRANSACTION_ABORTABLE

    def verify_only(
        self, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """AddPartitionsToTxn that adds nothing: whether the partition is durably in."""
        error = check_producer(self.record, producer_id, producer_epoch)
        if error or self.record is None:
            return error
        if self.record.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if partition in self._partitions else ErrorCode.TRANSACTION_ABORTABLE

    def end(self, request: EndRequest, ticket: Ticket, wall_ms: int) -> None:
        """EndTxn; answered with an `EndResult`."""
        verdict = judge_end(self.record, request, is_pending=self.is_pending)
        if isinstance(verdict, ErrorCode):
            self._reply(ticket, EndResult(verdict))
            return
        assert self.record is not None
        if verdict is Verdict.REPEAT:
            self._reply(ticket, EndResult(ErrorCode.NONE, *self.record.next_producer))
            return
        try:
            self._prepare(
                request.result, request.client_version, _Ending(EndCause.CLIENT, ticket), wall_ms
            )
        except KafkaError:
            self._reply(ticket, EndResult(UNAVAILABLE))

    # Without a request.

    def abort_overdue(self, wall_ms: int) -> None:
        """Abort a transaction whose time is up; not while something is being written."""
        if self._pending is None and self.record is not None and is_overdue(self.record, wall_ms):
            self._fence(_Ending(EndCause.TIMEOUT), wall_ms)

    def forget(self) -> None:
        """Write the tombstone of an id that is idle."""
        assert self.is_idle
        self._write(TransactionTombstone(self.transactional_id), NO_PRODUCER_EPOCH, None)

    def is_expired(self, config: TransactionConfig, wall_ms: int) -> bool:
        """Whether it is idle, and has been for so long that it is to be forgotten."""
        return self.is_idle and self.record is not None and is_expired(self.record, config, wall_ms)

    def complete(self, wall_ms: int) -> None:
        """Go on with what was decided before the broker stopped, if something was."""
        if self.record is not None and self.record.state.is_prepared:
            self._mark(self.record, wall_ms)

    def add_lost(self, partition: TopicPartition, wall_ms: int) -> None:
        """Add a partition in which the transaction is open, and whose record was lost."""
        assert self.record is not None
        assert self.record.state is TransactionState.ONGOING
        record = records.added(self.record, (partition,), self.record.client_version, wall_ms)
        self._write(record, self.last_epoch, None)

    def fence(self, epoch: int, wall_ms: int) -> None:
        """Let nobody go on with an epoch below this one, which a loss of power made doubtful.

        An open transaction is aborted first; call it again when that is done.
        """
        record = self.record
        assert record is not None
        if record.state is TransactionState.ONGOING:
            self._fence(_UNASKED, wall_ms)
            return
        producer = record.producer_id, min(epoch, EXHAUSTED_EPOCH)
        request = InitRequest(record.timeout_ms)
        self._write(
            records.initialized(record, request, producer, wall_ms), NO_PRODUCER_EPOCH, None
        )

    def retry(self, wall_ms: int) -> None:
        """Try again what was reported as `Stuck`."""
        record = self.record
        if record is not None and record.state.is_prepared and not (self._pending or self._awaited):
            self._mark(record, wall_ms)

    # What became of what was asked for.

    def on_appended(self, wall_ms: int) -> None:
        """The record is durable."""
        pending, self._pending = self._pending, None
        assert pending is not None
        previous, record = self.record, pending.record
        self.apply(record)
        self.last_epoch = pending.last_epoch
        if isinstance(record, TransactionTombstone):
            return
        match record.state:
            case TransactionState.EMPTY:
                self._reply(
                    pending.ticket,
                    InitResult(ErrorCode.NONE, record.producer_id, record.producer_epoch),
                )
            case TransactionState.ONGOING:
                if previous is None or previous.state is not TransactionState.ONGOING:
                    self._ask_for(Began())
                self._reply(pending.ticket, ErrorCode.NONE)
            case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
                self._mark(record, wall_ms)
            case _:
                assert previous is not None
                self._ask_for(Ended(previous, self._ending.cause))
                self._go_on(wall_ms)

    def on_append_failed(self) -> None:
        """It is not in the log and never will be."""
        pending, self._pending = self._pending, None
        assert pending is not None
        if self.record is not None and self.record.state.is_prepared:
            # Complete* could not be written; what it says is true all the same.
            self._release_ending()
            self._ask_for(Stuck(()))
            return
        ending, self._ending = self._ending, _UNASKED
        is_addition = pending.state is TransactionState.ONGOING
        self._reply(pending.ticket, UNAVAILABLE if is_addition else InitResult(UNAVAILABLE))
        self._reply(ending.ticket, InitResult(UNAVAILABLE))

    def on_marked(self, partition: TopicPartition, error: ErrorCode, wall_ms: int) -> None:
        """A marker is durable in its partition (NONE), or could not be written."""
        record = self.record
        assert record is not None
        assert record.state.is_prepared
        self._awaited -= 1
        if error in _MARKED or error in _SUPERSEDED:
            if self._unmarked is not None:
                self._unmarked.pop(partition, None)
            if error in _SUPERSEDED:
                self._ask_for(Superseded(record, partition, error))
        if self._awaited:
            return
        if self._unmarked:
            self._release_ending()
            self._ask_for(Stuck(tuple(self._unmarked)))
        else:
            self._complete(record, wall_ms)

    def on_waiting(self) -> None:
        """Something that was asked for has to be waited for: a fence need not be."""
        ending = self._ending
        if ending.request is not None:
            self._reply(ending.ticket, InitResult(ErrorCode.CONCURRENT_TRANSACTIONS))
            self._ending = _Ending(ending.cause)

    # Within.

    def _ask_for(self, effect: Effect) -> None:
        if self._effects is None:
            self._effects = []
        self._effects.append(effect)

    def _reply(self, ticket: Ticket | None, body: object) -> None:
        if ticket is not None:
            self._ask_for(Reply(ticket, body))

    def _write(
        self,
        record: DurableTransaction,
        last_epoch: int,
        ticket: Ticket | None,
        *,
        via: TransactionState | None = None,
    ) -> None:
        """Ask for an append; `via` is a state that is passed through on the way."""
        assert self._pending is None, "two transitions at once"
        state = TransactionState.DEAD
        if isinstance(record, TransactionRecord):
            state = record.state
        previous = None if self.record is None else self.record.state
        for step in (state,) if via is None else (via, state):
            assert previous in LEGAL_PREVIOUS[step], f"from {previous} to {step}"
            previous = step
        self._pending = _Pending(via or state, record, last_epoch, ticket)
        self._ask_for(Append(record))

    def _initialize(
        self, verdict: Verdict, request: InitRequest, ticket: Ticket, wall_ms: int
    ) -> None:
        record, last_epoch = self.record, NO_PRODUCER_EPOCH
        try:
            if verdict is Verdict.CREATE or record is None:
                record = records.created(
                    self.transactional_id, self._new_producer_id(), request.timeout_ms, wall_ms
                )
            elif verdict is Verdict.REPEAT:
                last_epoch = self.last_epoch
                producer = record.producer_id, record.producer_epoch
                record = records.initialized(record, request, producer, wall_ms)
            else:
                if request.producer_epoch != NO_PRODUCER_EPOCH:
                    last_epoch = record.producer_epoch
                producer = record.producer_id, record.producer_epoch + 1
                if verdict is Verdict.ROTATE:
                    producer = self._new_producer_id(), 0
                record = records.initialized(record, request, producer, wall_ms)
        except KafkaError:
            self._reply(ticket, InitResult(UNAVAILABLE))
            return
        self.client = request.client
        self._write(record, last_epoch, ticket)

    def _fence(self, ending: _Ending, wall_ms: int) -> None:
        """Abort on behalf of another client: the epoch rises whichever flow the producer uses."""
        via = TransactionState.PREPARE_EPOCH_FENCE
        try:
            self._prepare(ControlType.ABORT, ClientVersion.V2, ending, wall_ms, via=via)
        except KafkaError:
            self._reply(ending.ticket, InitResult(UNAVAILABLE))

    def _prepare(
        self,
        result: ControlType,
        client_version: ClientVersion,
        ending: _Ending,
        wall_ms: int,
        *,
        via: TransactionState | None = None,
    ) -> None:
        """Raises KafkaError: the epoch is exhausted, and there is no new producer id."""
        record = self.record
        assert record is not None
        last_epoch, next_producer_id = self.last_epoch, NO_PRODUCER_ID
        if client_version is ClientVersion.V2:
            last_epoch = record.producer_epoch
            if records.is_exhausted(record):
                next_producer_id = self._new_producer_id()
        self._ending = ending
        prepared = records.prepared(record, result, client_version, next_producer_id, wall_ms)
        self._write(prepared, last_epoch, None, via=via)

    def _mark(self, record: TransactionRecord, wall_ms: int) -> None:
        """Go on from Prepare*: ask for the markers, or complete it where none is missing."""
        if self._unmarked:
            self._awaited = len(self._unmarked)
            self._ask_for(Mark(record, tuple(self._unmarked)))
        else:
            self._complete(record, wall_ms)

    def _complete(self, record: TransactionRecord, wall_ms: int) -> None:
        """All markers are there: write that down, and answer the request for it.

        The answer comes behind the append, which changes nothing any more that a client could see,
        but that it may go on at once where nothing has to be waited for.
        """
        self._write(records.completed(record, wall_ms), self.last_epoch, None)
        if self._ending.request is None:
            self._release_ending()

    def _release_ending(self) -> None:
        """Answer the request for the end: it is decided. The cause is kept for `Ended`."""
        ending = self._ending
        self._ending = _Ending(ending.cause)
        if ending.request is not None:
            self._reply(ending.ticket, InitResult(ErrorCode.CONCURRENT_TRANSACTIONS))
        elif ending.ticket is not None:
            assert self.record is not None
            self._reply(ending.ticket, InitResult(ErrorCode.NONE, *self.record.next_producer))

    def _go_on(self, wall_ms: int) -> None:
        """The transaction has ended: do what it was aborted for, if that still waits."""
        ending, self._ending = self._ending, _UNASKED
        if ending.request is not None and ending.ticket is not None:
            self.init_producer_id(ending.request, ending.ticket, wall_ms)
