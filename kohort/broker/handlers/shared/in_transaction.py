"""What the transactions are asked before batches of one are appended to partitions (KIP-890).

Up to Produce v11 the producer has added the partitions by AddPartitionsToTxn; from v12 on the
request adds them itself, all in one record of the transaction. A batch that is refused, by the
transaction or by what the partition knows of the producer, adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kohort.broker.core.partition.verdict import ValidBatch
from kohort.broker.core.transaction.requests import Client, TopicPartition
from kohort.broker.runtime.later import Later
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError

ABORTABLE_SINCE: Final = 11
ADDS_SINCE: Final = 12

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Refuse(Protocol):
    """Tells a producer; where its log begins, too, if that is what has refused the batch."""

    def __call__(self, error: KafkaError, *, by_log: bool = False) -> None: ...


@dataclass(slots=True, eq=False)
class Candidate:
    """A valid batch of a transaction that wants to be appended."""

    partition: Partition
    batch: ValidBatch
    append: Callable[[], None]
    """Appends it. Raises KafkaError."""
    refuse: Refuse
    """Has the producer told why it was not appended."""

    @property
    def place(self) -> TopicPartition:
        """Names the partition."""
        return TopicPartition(self.partition.topic_name, self.partition.index)


class Producer(NamedTuple):
    """The producer of a Produce request with a transactional id, as its batches say."""

    transactions: Transactions
    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """Version of the request: newer ones are told more precisely, and add partitions."""
    client: Client

    @property
    def adds(self) -> bool:
        """Whether its requests add partitions to the transaction."""
        return self.version >= ADDS_SINCE

    def settling(self) -> Later[None] | None:
        """To be waited for before anything else."""
        return self.transactions.settling(self.transactional_id, adds=self.adds)

    def check(self, place: TopicPartition, *, adds: bool) -> None:
        """Whether a batch may be appended there. Raises KafkaError."""
        error = self.transactions.verify(
            self.transactional_id, self.producer_id, self.producer_epoch, [place], adds=adds
        )
        if error:
            raise KafkaError(*self.told(error))

    def add(self, places: Sequence[TopicPartition]) -> Later[None] | None:
        """Add these partitions to the transaction; as `Transactions.add`."""
        return self.transactions.add(
            self.transactional_id, self.producer_id, self.producer_epoch, places, self.client
        )

    def told(self, error: ErrorCode) -> tuple[ErrorCode, str | None]:
        """What the transactions have said, as producers of this version know it."""
        if error is ErrorCode.TRANSACTION_ABORTABLE:
            is_known = self.version >= ABORTABLE_SINCE
            code = error if is_known else ErrorCode.INVALID_TXN_STATE
            return code, "Partition was not added to the transaction"
        if error is ErrorCode.PRODUCER_FENCED:
            return (
                ErrorCode.INVALID_PRODUCER_EPOCH,
                "another instance of the producer has taken over",
            )
        # Older producers try again after this one, and give up after the other two.
        if error in _UNAVAILABLE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not self.adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot go on yet: {error.name}"
        return error, None


def append_in_transaction(
    transactions: Transactions,
    transactional_id: str,
    version: int,
    client: Client,
    candidates: Sequence[Candidate],
) -> Generator[Later[None], None, None]:
    """Append what may be appended of one request's batches, and refuse the others.

    Yields what it waits for; it is resumed when that is done, however it has ended.
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
        producer = Producer(
            transactions, transactional_id, first.producer_id, epoch, version, client
        )
        yield from _append_of_producer(producer, of_epoch)


def _append_of_producer(
    producer: Producer, candidates: Sequence[Candidate]
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
                one.refuse(KafkaError(*producer.told(error.code)))
            return
        if adding is not None:
            # Meanwhile its time may have been over, or another instance have taken over.
            admitted = [one for one in admitted if _is_admitted(producer, one, adds=False)]
    for one in admitted:
        try:
            one.append()
        except KafkaError as error:
            one.refuse(error)


def _is_admitted(producer: Producer, one: Candidate, *, adds: bool) -> bool:
    partition = one.partition
    try:
        producer.check(one.place, adds=adds)
        partition.check_online()
    except KafkaError as error:
        one.refuse(error)
        return False
    try:
        partition.log.check_producer(one.batch.header, is_first_of_epoch_zero=producer.adds)
    except KafkaError as error:
        # Kafka notices an older epoch while it asks the coordinator.
        one.refuse(error, by_log=error.code is not ErrorCode.INVALID_PRODUCER_EPOCH)
        return False
    return True
