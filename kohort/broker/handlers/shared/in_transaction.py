"""Verification of transactional batches before they are appended to partitions (KIP-890).

Up to Produce v11, the producer adds partitions with AddPartitionsToTxn; from v12 on, the broker
adds the partitions of a Produce request, all in one record of the transaction, except those whose
batch is rejected by the transaction or by the partition's producer state.

Produce and TxnOffsetCommit take the same steps: wait until no operation for the transactional id is
in progress, verify the partitions, and, from a certain version on, add them to the transaction.
They differ in that version, and in the errors that clients of each version get.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.broker.core.partition.verdict import ValidBatch
from kohort.broker.core.transaction.client import Client
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.produce import PartitionProduceResponse

if TYPE_CHECKING:
    # Not imported at run time: without transactions, the module is not needed.
    from kohort.broker.transactions.transactions import Transactions


class ClientError(NamedTuple):
    """The error sent to clients in place of an internal one."""

    code: ErrorCode
    message: str | None = None
    since: int = 0
    """The first version of the API that uses this error."""


class Flow(NamedTuple):
    """The parameters in which Produce and TxnOffsetCommit differ."""

    adds_since: int
    """The first version of the API that adds partitions to the transaction implicitly."""
    client_errors: Mapping[ErrorCode, Sequence[ClientError]]
    """The errors that replace an internal error, newest versions first; errors without an entry are
    returned as they are."""


class TransactionalProducer(NamedTuple):
    transactions: "Transactions"
    flow: Flow
    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    client: Client

    @property
    def adds(self) -> bool:
        """Whether this version adds partitions to the transaction implicitly."""
        return self.version >= self.flow.adds_since

    def settling(self) -> Deferred[None] | None:
        """Return a `Deferred` to await before the verification; None if it need not wait."""
        return self.transactions.settling(self.transactional_id, adds=self.adds)

    def verify(self, places: Sequence[tuple[str, int]]) -> ErrorCode:
        """Return NONE if these partitions are in the transaction, else the error for the client."""
        try:
            self.check(places, adds=False)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def check(self, places: Sequence[tuple[str, int]], *, adds: bool) -> None:
        """Raise the error for the client unless these partitions are in the transaction, or with
        `adds` may be added to it.
        """
        error = self.transactions.verify(
            self.transactional_id, self.producer_id, self.producer_epoch, places, adds=adds
        )
        if error:
            raise self.client_error(error)

    def add(self, places: Sequence[tuple[str, int]]) -> Deferred[None] | None:
        """Add partitions as `Transactions.add` does; its errors pass through `client_error`."""
        return self.transactions.add(
            self.transactional_id, self.producer_id, self.producer_epoch, places, self.client
        )

    def client_error(self, error: ErrorCode) -> KafkaError:
        """Return the error that clients of this version get for an error of the transaction
        coordinator.
        """
        for client_error in self.flow.client_errors.get(error, ()):
            if self.version >= client_error.since:
                return KafkaError(client_error.code, client_error.message)
        return KafkaError(error)


def fenced_in(version: int, error: ErrorCode, *, since: int) -> ErrorCode:
    """Return `error` as this version expresses it: before version `since`, PRODUCER_FENCED was
    INVALID_PRODUCER_EPOCH (KIP-588).
    """
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


ABORTABLE_SINCE: Final = 11
ADDS_SINCE: Final = 12


def _retriable(error: ErrorCode) -> ClientError:
    """An error that older producers retry; the original error would be fatal to them."""
    message = f"the transaction cannot continue yet: {error.name}"
    return ClientError(ErrorCode.NOT_ENOUGH_REPLICAS, message)


_NOT_ADDED: Final = "Partition was not added to the transaction"

FLOW: Final = Flow(
    ADDS_SINCE,
    {
        ErrorCode.TRANSACTION_ABORTABLE: (
            ClientError(ErrorCode.TRANSACTION_ABORTABLE, _NOT_ADDED, since=ABORTABLE_SINCE),
            ClientError(ErrorCode.INVALID_TXN_STATE, _NOT_ADDED),
        ),
        ErrorCode.PRODUCER_FENCED: (
            ClientError(
                ErrorCode.INVALID_PRODUCER_EPOCH, "another instance of the producer has taken over"
            ),
        ),
        ErrorCode.CONCURRENT_TRANSACTIONS: (
            ClientError(ErrorCode.CONCURRENT_TRANSACTIONS, since=ADDS_SINCE),
            _retriable(ErrorCode.CONCURRENT_TRANSACTIONS),
        ),
        **{
            error: (_retriable(error),)
            for error in (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
        },
    },
)
"""Produce: the first version that adds partitions implicitly, and the errors for its clients."""


@dataclass(slots=True, eq=False)
class Candidate:
    partition: Partition
    batch: ValidBatch
    result: PartitionProduceResponse
    append: Callable[[], None]
    """Appends the batch. Raises KafkaError."""

    def refuse(self, error: KafkaError, *, by_log: bool = False) -> None:
        """Put the error into the response; if the log rejected the batch (`by_log`), also the log
        start offset.
        """
        self.result.error_code, self.result.error_message = error.code, error.message
        if by_log:
            self.result.log_start_offset = self.partition.log.log_start_offset

    @property
    def place(self) -> tuple[str, int]:
        return self.partition.topic_name, self.partition.index


def append_in_transaction(
    transactions: "Transactions",
    transactional_id: str,
    version: int,
    client: Client,
    candidates: Sequence[Candidate],
) -> Generator[Deferred[None], None, None]:
    """Append the batches that the transaction admits. The caller awaits each yielded `Deferred`."""
    headers = [candidate.batch.header for candidate in candidates]
    first = headers[0]
    if any(header.producer_id != first.producer_id for header in headers):
        message = "Transactional records contained more than one producer ID"
        for candidate in candidates:
            candidate.refuse(KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message))
        return
    by_epoch: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        by_epoch.setdefault(candidate.batch.header.producer_epoch, []).append(candidate)
    for epoch, of_epoch in by_epoch.items():
        producer = TransactionalProducer(
            transactions, FLOW, version, transactional_id, first.producer_id, epoch, client
        )
        yield from _append_of_producer(producer, of_epoch)


def _append_of_producer(
    producer: TransactionalProducer, candidates: Sequence[Candidate]
) -> Generator[Deferred[None], None, None]:
    settling = producer.settling()
    if settling is not None:
        yield settling
    admitted = [
        candidate
        for candidate in candidates
        if _is_admitted(producer, candidate, adds=producer.adds)
    ]
    if producer.adds and admitted:
        try:
            adding = producer.add([candidate.place for candidate in admitted])
            if adding is not None:
                yield adding
                adding.result()
        except KafkaError as error:
            for candidate in admitted:
                candidate.refuse(producer.client_error(error.code))
            return
        if adding is not None:
            # By now the transaction may have timed out, or a newer producer fenced this one.
            admitted = [
                candidate for candidate in admitted if _is_admitted(producer, candidate, adds=False)
            ]
    for candidate in admitted:
        try:
            candidate.append()
        except KafkaError as error:
            candidate.refuse(error)


def _is_admitted(producer: TransactionalProducer, candidate: Candidate, *, adds: bool) -> bool:
    partition = candidate.partition
    try:
        producer.check([candidate.place], adds=adds)
        partition.check_online()
    except KafkaError as error:
        candidate.refuse(error)
        return False
    try:
        partition.log.producers.check(candidate.batch.header, is_first_of_epoch_zero=producer.adds)
    except KafkaError as error:
        # INVALID_PRODUCER_EPOCH gets no log start offset: in Kafka the coordinator reports it.
        candidate.refuse(error, by_log=error.code is not ErrorCode.INVALID_PRODUCER_EPOCH)
        return False
    return True
