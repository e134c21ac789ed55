"""Verification of transactional batches before they are appended to partitions (KIP-890).

Up to Produce v11 the producer has added the partitions with AddPartitionsToTxn; from v12 on the
request adds them itself, all in one record of the transaction. A batch that is refused, by the
transaction or by the partition's producer state, adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kohort.broker.core.partition.verdict import ValidBatch
from kohort.broker.core.transaction.requests import Client, TopicPartition
from kohort.broker.handlers.shared.transactional_producer import (
    ClientError,
    Flow,
    TransactionalProducer,
)
from kohort.broker.runtime.later import Later
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError

ABORTABLE_SINCE: Final = 11
ADDS_SINCE: Final = 12


def _retriable(error: ErrorCode) -> ClientError:
    """An error that older producers retry; they would give up after the original one."""
    message = f"the transaction cannot go on yet: {error.name}"
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
"""How Produce uses transactions, and the errors that it returns."""


class Refuse(Protocol):
    """Refuses a batch; the response includes the log start offset if the log refused it."""

    def __call__(self, error: KafkaError, *, by_log: bool = False) -> None: ...


@dataclass(slots=True, eq=False)
class Candidate:
    """A valid transactional batch that is to be appended."""

    partition: Partition
    batch: ValidBatch
    append: Callable[[], None]
    """Appends the batch. Raises KafkaError."""
    refuse: Refuse
    """Reports to the producer why it was not appended."""

    @property
    def place(self) -> TopicPartition:
        """The partition's name and number."""
        return TopicPartition(self.partition.topic_name, self.partition.index)


def append_in_transaction(
    transactions: Transactions,
    transactional_id: str,
    version: int,
    client: Client,
    candidates: Sequence[Candidate],
) -> Generator[Later[None], None, None]:
    """Append those of a request's batches that are admitted, and refuse the others.

    Yields what it waits for; to be resumed when that is done, whatever the result.
    """
    headers = [one.batch.header for one in candidates]
    first = headers[0]
    if any(header.producer_id != first.producer_id for header in headers):
        message = "Transactional records contained more than one producer ID"
        for one in candidates:
            one.refuse(KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message))
        return
    by_epoch: dict[int, list[Candidate]] = {}
    for one in candidates:
        by_epoch.setdefault(one.batch.header.producer_epoch, []).append(one)
    for epoch, of_epoch in by_epoch.items():
        producer = TransactionalProducer(
            transactions, FLOW, version, transactional_id, first.producer_id, epoch, client
        )
        yield from _append_of_producer(producer, of_epoch)


def _append_of_producer(
    producer: TransactionalProducer, candidates: Sequence[Candidate]
) -> Generator[Later[None], None, None]:
    settling = producer.settling()
    if settling is not None:
        yield settling
    admitted = [one for one in candidates if _is_admitted(producer, one, adds=producer.adds)]
    if producer.adds and admitted:
        try:
            adding = producer.add([one.place for one in admitted])
            if adding is not None:
                yield adding
                adding.result()
        except KafkaError as error:
            for one in admitted:
                one.refuse(producer.client_error(error.code))
            return
        if adding is not None:
            # Meanwhile the transaction may have timed out, or another instance taken over.
            admitted = [one for one in admitted if _is_admitted(producer, one, adds=False)]
    for one in admitted:
        try:
            one.append()
        except KafkaError as error:
            one.refuse(error)


def _is_admitted(producer: TransactionalProducer, one: Candidate, *, adds: bool) -> bool:
    partition = one.partition
    try:
        producer.check([one.place], adds=adds)
        partition.check_online()
    except KafkaError as error:
        one.refuse(error)
        return False
    try:
        partition.log.check_producer(one.batch.header, is_first_of_epoch_zero=producer.adds)
    except KafkaError as error:
        # Kafka detects an older epoch when it asks the coordinator.
        one.refuse(error, by_log=error.code is not ErrorCode.INVALID_PRODUCER_EPOCH)
        return False
    return True
