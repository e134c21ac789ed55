"""One transactional id: its producer, its transaction, and the record that is being written.

A request is checked against the durable state, and may cause one append. Until that completes,
every request that would change the id is answered CONCURRENT_TRANSACTIONS. Only `apply` changes the
state, when the record is durable. If the append fails, nothing has changed.

The end of a transaction is three such changes: Prepare*, which is the decision; a marker in every
partition; Complete*. `TransactionEnd` has the request that waits for the end, and the missing
markers.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kohort.broker.core.transaction import transitions
from kohort.broker.core.transaction.client import Client
from kohort.broker.core.transaction.effects import (
    Append,
    Began,
    Effect,
    EndCause,
    Ended,
    Reply,
    Stuck,
)
from kohort.broker.core.transaction.ending import Fencing, TransactionEnd
from kohort.broker.core.transaction.records import (
    DurableTransaction,
    TransactionRecord,
    TransactionTombstone,
    last_epoch_of,
)
from kohort.broker.core.transaction.requests import (
    NO_PRODUCER_EPOCH,
    AddRequest,
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
    Action,
    check_batch,
    deadline_ms,
    decide_add,
    decide_end,
    decide_init,
    is_expired,
    is_overdue,
)
from kohort.broker.core.transaction.states import TransactionState, is_legal
from kohort.broker.core.transaction.transitions import Transition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.control import ControlType

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""Retriable response: the log could not be written."""


class _Pending(NamedTuple):
    state: TransactionState
    """The next state, or PREPARE_EPOCH_FENCE on the way to PREPARE_ABORT."""
    record: DurableTransaction
    last_epoch: int = NO_PRODUCER_EPOCH
    ticket: Ticket | None = None
    """The request that waits for this record."""


class TransactionalId:
    """State machine of one id. All times are wall time, because deadlines have to
    survive restarts.
    """

    __slots__ = (
        "_effects",
        "_end",
        "_new_producer_id",
        "_partitions",
        "_pending",
        "client",
        "last_epoch",
        "log_partition",
        "record",
        "transactional_id",
    )

    def __init__(
        self, transactional_id: str, new_producer_id: Callable[[], int], *, log_partition: int = 0
    ) -> None:
        """`new_producer_id` returns an id that no producer has had, or raises KafkaError."""
        self.transactional_id = transactional_id
        self.log_partition = log_partition
        """Partition of __transaction_state that stores this id; not used by this class."""
        self.record: TransactionRecord | None = None
        """The durable record; None before the first record and after the tombstone."""
        self.last_epoch = NO_PRODUCER_EPOCH
        """Previous producer epoch: a retried InitProducerId sends it, and gets the current one."""
        self.client: Client | None = None
        """The last client that initialized the id or added to its transaction; None if there was
        none since the start."""
        self._new_producer_id = new_producer_id
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._pending: _Pending | None = None
        self._end: TransactionEnd | None = None
        """The commit or abort in progress, from before Prepare* is written; otherwise None."""
        self._effects: list[Effect] | None = None
        """Effects for `take_effects`; None instead of an empty list, to save memory with very many
        ids.
        """

    # State.

    def apply(self, record: DurableTransaction) -> None:
        """Apply a durable record: the only way in which state changes, live and on replay."""
        if isinstance(record, TransactionTombstone):
            self.record = None
            self._partitions = frozenset()
            self.last_epoch = NO_PRODUCER_EPOCH
            return
        self.record = record
        self._partitions = frozenset(record.partitions)
        self.last_epoch = last_epoch_of(record)
        if not record.state.is_prepared:
            self._end = None
            return
        if self._end is None:  # During replay: the end was decided before the start.
            self._end = TransactionEnd(EndCause.START)
        self._end.decide(record)

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    @property
    def is_busy(self) -> bool:
        """Whether a record or markers are being written."""
        return self._pending is not None or (self._end is not None and self._end.is_awaiting)

    @property
    def is_adding(self) -> bool:
        """Whether the record being written adds partitions to an open transaction."""
        return self._pending is not None and self._pending.state is TransactionState.ONGOING

    @property
    def is_gone(self) -> bool:
        """Whether the id has no state and nothing is being written."""
        return self.record is None and self._pending is None

    @property
    def is_open(self) -> bool:
        """Whether the id has an open transaction, or one with missing markers."""
        return self.record is not None and not self.record.state.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether the id has no transaction and no write in progress, so that it may be removed."""
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
        unmarked = None if self._end is None else self._end.unmarked
        return self.record.partitions if unmarked is None else unmarked

    @property
    def has_effects(self) -> bool:
        return self._effects is not None

    def take_effects(self) -> list[Effect]:
        """Return the effects requested since the last call, in order."""
        effects, self._effects = self._effects or [], None
        return effects

    # Requests. Each ticket is answered by one Reply, now or later.

    def init_producer_id(self, request: InitRequest, ticket: Ticket, wall_ms: int) -> None:
        """Handle an InitProducerId that has passed `check_init`; answered with an `InitResult`."""
        action = decide_init(self.record, self.last_epoch, request, is_pending=self.is_pending)
        if isinstance(action, ErrorCode):
            self._reply(ticket, InitResult(action))
        elif action is Action.FENCE:
            fencing = Fencing(request, ticket)
            self._fence(TransactionEnd(EndCause.FENCE, fencing=fencing), wall_ms)
        else:
            self._initialize(action, request, ticket, wall_ms)

    def add(self, request: AddRequest, ticket: Ticket, wall_ms: int) -> None:
        """Handle a request to add partitions to the transaction; answered with an `ErrorCode`."""
        action = decide_add(
            self.record,
            request.producer_id,
            request.producer_epoch,
            is_pending=self.is_pending,
            are_all_in=self._partitions.issuperset(request.partitions),
        )
        if isinstance(action, ErrorCode):
            self._reply(ticket, action)
        elif action is Action.NOTHING_TO_WRITE:
            self._reply(ticket, ErrorCode.NONE)
        else:
            assert self.record is not None
            self.client = request.client
            partitions, version = request.partitions, request.client_version
            transition = transitions.added(
                self.record, self.last_epoch, partitions, version, wall_ms
            )
            self._write(transition, ticket)

    def verify(
        self,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        *,
        adds: bool,
    ) -> ErrorCode:
        """Check whether a batch may be appended to these partitions.

        Args:
            adds: whether the caller adds missing partitions before it appends.

        Returns:
            TRANSACTION_ABORTABLE if a partition is missing and is not added;
            CONCURRENT_TRANSACTIONS while the transaction ends, or while the record being written
            decides whether the partition is in the transaction.
        """
        are_in = self._partitions.issuperset(partitions)
        return check_batch(
            self.record,
            producer_id,
            producer_epoch,
            adds=adds,
            are_in=are_in,
            is_changing=self.is_pending and not (self.is_adding and are_in),
        )

    def verify_only(
        self, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Handle an AddPartitionsToTxn that only verifies that the partition was durably added."""
        is_in = partition in self._partitions
        return check_batch(
            self.record, producer_id, producer_epoch, adds=False, are_in=is_in, is_changing=False
        )

    def end(self, request: EndRequest, ticket: Ticket, wall_ms: int) -> None:
        """Handle an EndTxn; answered with an `EndResult`."""
        action = decide_end(self.record, request, is_pending=self.is_pending)
        if isinstance(action, ErrorCode):
            self._reply(ticket, EndResult(action))
            return
        assert self.record is not None
        if action is Action.REPEAT:
            self._reply(ticket, EndResult(ErrorCode.NONE, *self.record.next_producer))
            return
        end = TransactionEnd(EndCause.CLIENT, ticket)
        self._prepare(request.result, request.client_version, end, wall_ms)

    # Steps without a request.

    def abort_overdue(self, wall_ms: int) -> None:
        """Abort a transaction that exceeded its timeout, unless a record is being written."""
        if self._pending is None and self.record is not None and is_overdue(self.record, wall_ms):
            self._fence(TransactionEnd(EndCause.TIMEOUT), wall_ms)

    def forget(self) -> None:
        """Write the tombstone of an id that is idle."""
        assert self.is_idle
        self._write(Transition(TransactionTombstone(self.transactional_id)))

    def is_expired(self, config: TransactionConfig, wall_ms: int) -> bool:
        """Whether the id has been idle for so long that it expires."""
        return self.is_idle and self.record is not None and is_expired(self.record, config, wall_ms)

    def complete(self, wall_ms: int) -> None:
        """Complete the transaction if it was in Prepare* when the broker stopped."""
        if self.record is not None and self.record.state.is_prepared:
            self._mark(wall_ms)

    def add_lost(self, partition: TopicPartition, wall_ms: int) -> None:
        """Add a partition of an open transaction, because the record that added it was lost."""
        record = self.record
        assert record is not None
        assert record.state is TransactionState.ONGOING
        self._write(
            transitions.added(record, self.last_epoch, (partition,), record.client_version, wall_ms)
        )

    def fence(self, epoch: int, wall_ms: int) -> None:
        """Fence all epochs below `epoch`: a power failure may have lost the record that replaced
        them.

        An open transaction is aborted first; call `fence` again when the abort is complete.
        """
        record = self.record
        assert record is not None
        if record.state is TransactionState.ONGOING:
            self._fence(TransactionEnd(EndCause.START), wall_ms)
        else:
            self._write(transitions.fenced(record, epoch, wall_ms))

    def retry(self, wall_ms: int) -> None:
        """Request the missing markers again, or the append of Complete*; see the effect `Stuck`."""
        record = self.record
        if record is not None and record.state.is_prepared and not self.is_busy:
            self._mark(wall_ms)

    # Outcomes of effects.

    def on_appended(self, wall_ms: int, *, answers_first: bool = False) -> None:
        """Apply the record that was being written, which is now durable, and continue.

        Args:
            answers_first: whether to answer EndTxn before its markers are written, because the
                caller writes them before it executes any later request.
        """
        pending, self._pending = self._pending, None
        assert pending is not None
        previous, record, end = self.record, pending.record, self._end
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
                assert end is not None
                answer = end.answer_client(record) if answers_first else None
                self._ask_for(answer)
                self._mark(wall_ms, is_answered=answer is not None)
            case _:
                assert previous is not None
                assert end is not None
                self._ask_for(Ended(previous, end.cause))
                fencing = end.take_fencing()
                if fencing is not None:
                    self.init_producer_id(fencing.request, fencing.ticket, wall_ms)

    def on_append_failed(self) -> None:
        """Record that the append failed: the record will never be in the log."""
        pending, self._pending = self._pending, None
        assert pending is not None
        record, end = self.record, self._end
        if record is not None and record.state.is_prepared:
            # All markers are written, so the transaction has ended even without Complete*.
            assert end is not None
            self._ask_for(end.answer_either(record))
            self._ask_for(Stuck(()))
            return
        is_addition = pending.state is TransactionState.ONGOING
        self._reply(pending.ticket, UNAVAILABLE if is_addition else InitResult(UNAVAILABLE))
        if end is not None:
            self._end = None
            self._ask_for(end.answer_failure(UNAVAILABLE))

    def on_marked(self, partition: TopicPartition, error: ErrorCode, wall_ms: int) -> None:
        """Record that a marker is durable in its partition (NONE), or could not be written."""
        record, end = self.record, self._end
        assert record is not None
        assert end is not None
        self._ask_for(end.on_marked(record, partition, error))
        if end.is_awaiting:
            return
        if end.unmarked:
            self._ask_for(end.answer_either(record))
            self._ask_for(Stuck(end.unmarked))
        else:
            self._complete(record, end, wall_ms)

    def on_waiting(self) -> None:
        """Called if an append or marker is not written immediately. Answers an InitProducerId that
        waits for the end of a transaction with an error, on which the client retries.
        """
        if self._end is not None:
            self._ask_for(self._end.answer_fencing())

    # Internals.

    def _ask_for(self, effect: Effect | None) -> None:
        if effect is None:
            return
        if self._effects is None:
            self._effects = []
        self._effects.append(effect)

    def _reply(self, ticket: Ticket | None, body: object) -> None:
        if ticket is not None:
            self._ask_for(Reply(ticket, body))

    def _write(
        self,
        transition: Transition,
        ticket: Ticket | None = None,
        *,
        via: TransactionState | None = None,
    ) -> None:
        """Request the append of a record. `via`: a state to pass through before the record's."""
        assert self._pending is None, "a transition is already in progress"
        record, last_epoch = transition
        state = TransactionState.DEAD
        if isinstance(record, TransactionRecord):
            state = record.state
        previous = self.record and self.record.state
        assert is_legal(previous, *(() if via is None else (via,)), state), (previous, via, state)
        self._pending = _Pending(via or state, record, last_epoch, ticket)
        self._ask_for(Append(record))

    def _initialize(
        self, action: Action, request: InitRequest, ticket: Ticket, wall_ms: int
    ) -> None:
        record = self.record
        try:
            if action is Action.CREATE or record is None:
                transition = transitions.created(
                    self.transactional_id, self._new_producer_id(), request.timeout_ms, wall_ms
                )
            else:
                transition = transitions.initialized(
                    record, self.last_epoch, action, request, self._new_producer_id, wall_ms
                )
        except KafkaError:
            self._reply(ticket, InitResult(UNAVAILABLE))
            return
        self.client = request.client
        self._write(transition, ticket)

    def _fence(self, end: TransactionEnd, wall_ms: int) -> None:
        """Abort the open transaction without its producer's request. The epoch is raised in both
        transaction versions, so that the producer is fenced.
        """
        via = TransactionState.PREPARE_EPOCH_FENCE
        self._prepare(ControlType.ABORT, ClientVersion.V2, end, wall_ms, via=via)

    def _prepare(
        self,
        result: ControlType,
        client_version: ClientVersion,
        end: TransactionEnd,
        wall_ms: int,
        *,
        via: TransactionState | None = None,
    ) -> None:
        """Write the decision. If the epoch is exhausted and there is no new producer id, the
        request is answered with an error, and the state is unchanged.
        """
        record = self.record
        assert record is not None
        try:
            transition = transitions.prepared(
                record, self.last_epoch, result, client_version, self._new_producer_id, wall_ms
            )
        except KafkaError:
            self._ask_for(end.answer_failure(UNAVAILABLE))
            return
        self._end = end
        self._write(transition, via=via)

    def _mark(self, wall_ms: int, *, is_answered: bool = False) -> None:
        """Continue from Prepare*: request the missing markers, or complete the transaction."""
        record, end = self.record, self._end
        assert record is not None
        assert end is not None
        mark = end.mark(record, is_answered=is_answered)
        if mark is None:
            self._complete(record, end, wall_ms)
        else:
            self._ask_for(mark)

    def _complete(self, record: TransactionRecord, end: TransactionEnd, wall_ms: int) -> None:
        """Request the append of Complete*, and answer the EndTxn if it still waits.

        The append is requested before the answer, so that, if it completes without waiting, the id
        is no longer busy when the client sends its next request.
        """
        self._write(transitions.completed(record, self.last_epoch, wall_ms))
        self._ask_for(end.answer_client(record))
