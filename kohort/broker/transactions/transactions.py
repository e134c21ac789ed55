"""The transaction coordinator's interface: every request is answered exactly once."""

from collections.abc import Callable, Sequence

from kohort.broker.core.transaction.client import Client
from kohort.broker.core.transaction.requests import (
    AddRequest,
    ClientVersion,
    EndRequest,
    EndResult,
    InitRequest,
    InitResult,
    TopicPartition,
)
from kohort.broker.core.transaction.rules import check_init
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.transactions.host import TransactionHost
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.protocol.errors import ErrorCode, KafkaError


class Transactions:
    def __init__(
        self, host: TransactionHost, *, verifies: Callable[[], bool] = lambda: True
    ) -> None:
        """`verifies`: whether to verify batches of requests that add no partitions."""
        self.host = host
        self._verifies = verifies
        self.markers: PartitionMarkers = host.marking.writer
        """The marker writer, which WriteTxnMarkers uses to end hanging transactions."""

    # Requests. The results may fail with KafkaError: NOT_COORDINATOR when the broker stops.

    def init_producer_id(self, transactional_id: str, request: InitRequest) -> Deferred[InitResult]:
        ticket: Deferred[InitResult] = Deferred()
        error = check_init(transactional_id, request, self.host.config.rules)
        txn = error or self.host.find_or_make(transactional_id)
        if isinstance(txn, ErrorCode):
            ticket.set_result(InitResult(txn))
        else:
            self.host.step(
                txn, ticket, lambda wall_ms: txn.init_producer_id(request, ticket, wall_ms)
            )
        return ticket

    def add_partitions(self, transactional_id: str, request: AddRequest) -> Deferred[ErrorCode]:
        """Handle an AddPartitionsToTxn or AddOffsetsToTxn; the partitions must exist."""
        ticket: Deferred[ErrorCode] = Deferred()
        txn = self.host.find(transactional_id)
        if isinstance(txn, ErrorCode):
            ticket.set_result(txn)
        else:
            self.host.step(txn, ticket, lambda wall_ms: txn.add(request, ticket, wall_ms))
        return ticket

    def end(self, transactional_id: str, request: EndRequest) -> Deferred[EndResult]:
        ticket: Deferred[EndResult] = Deferred()
        txn = self.host.find(transactional_id)
        if isinstance(txn, ErrorCode):
            ticket.set_result(EndResult(txn))
        else:
            self.host.step(txn, ticket, lambda wall_ms: txn.end(request, ticket, wall_ms))
        return ticket

    # For batches: Produce and TxnOffsetCommit.

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        adds: bool,
    ) -> ErrorCode:
        """Return NONE if batches may be appended to these partitions; see `TransactionalId.verify`.

        Args:
            adds: missing partitions will be added before the append, by `add`.
        """
        if not adds and not self._verifies():
            return ErrorCode.NONE
        txn = self.host.find(transactional_id)
        if isinstance(txn, ErrorCode):
            return txn
        return txn.verify(producer_id, producer_epoch, partitions, adds=adds)

    def verify_only(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
    ) -> ErrorCode:
        """Handle an AddPartitionsToTxn with `verify_only`: check the partition, add nothing."""
        txn = self.host.find(transactional_id)
        if isinstance(txn, ErrorCode):
            return txn
        return txn.verify_only(producer_id, producer_epoch, partition)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        client: Client | None = None,
    ) -> Deferred[None] | None:
        """Add partitions that `verify` accepted, in one record; None if they are durably added
        already.

        The `Deferred` fails with KafkaError if nothing was added.

        Raises:
            KafkaError: nothing was added, and this was known without waiting.
        """
        places = tuple([TopicPartition(*place) for place in partitions])
        request = AddRequest(producer_id, producer_epoch, places, ClientVersion.V2, client)
        added = self.add_partitions(transactional_id, request).map(_raise_error)
        return added if isinstance(added, Deferred) else None

    def settling(self, transactional_id: str, *, adds: bool) -> Deferred[None] | None:
        """Return a `Deferred` that a batch must await before it is verified; None if it need not
        wait.

        While a record is being written, the rules would reject even a valid batch.

        Args:
            adds: whether the batch's Produce version adds partitions implicitly, so that the batch
                may begin the next transaction. Otherwise the batch waits only for additions in
                progress.
        """
        txn = self.host.find(transactional_id)
        if isinstance(txn, ErrorCode) or not (txn.is_busy if adds else txn.is_adding):
            return None
        return self.host.settled(txn)


def _raise_error(error: ErrorCode) -> None:
    if error:
        raise KafkaError(error)
