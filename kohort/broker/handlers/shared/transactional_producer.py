"""The producer of a request with a transactional id, and its verification (KIP-890).

Produce and TxnOffsetCommit take the same steps: wait until no operation for the transactional id is
in progress, verify the partitions, and, from a certain version on, add them to the transaction.
They differ in that version, and in the errors that clients of each version get.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.broker.core.transaction.requests import Client, TopicPartition
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError


class ClientError(NamedTuple):
    """The error sent to clients in place of an internal one."""

    code: ErrorCode
    message: str | None = None
    since: int = 0
    """The first version of the API that uses it."""


class Flow(NamedTuple):
    """The differences between the APIs of transactional producers."""

    adds_since: int
    """The version from which its requests add partitions themselves."""
    client_errors: Mapping[ErrorCode, Sequence[ClientError]]
    """Errors that are replaced, newest versions first; others are returned as they are."""


class TransactionalProducer(NamedTuple):
    transactions: Transactions
    flow: Flow
    version: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    client: Client

    @property
    def adds(self) -> bool:
        """Whether its requests add partitions to the transaction."""
        return self.version >= self.flow.adds_since

    def settling(self) -> Deferred[None] | None:
        """Return what to wait for before the verification; None if nothing."""
        return self.transactions.settling(self.transactional_id, adds=self.adds)

    def verify(self, places: Sequence[TopicPartition], *, adds: bool = False) -> ErrorCode:
        """Whether these partitions are in the transaction, or with `adds` may be added to it: NONE,
        or the error for the client.
        """
        error = self._verify(places, adds=adds)
        return error and self.client_error(error).code

    def check(self, places: Sequence[TopicPartition], *, adds: bool) -> None:
        """Verify, and raise the error for the client as a KafkaError."""
        error = self._verify(places, adds=adds)
        if error:
            raise self.client_error(error)

    def add(self, places: Sequence[TopicPartition]) -> Deferred[None] | None:
        """Add partitions as `Transactions.add` does; its errors pass through `client_error`."""
        return self.transactions.add(
            self.transactional_id, self.producer_id, self.producer_epoch, places, self.client
        )

    def client_error(self, error: ErrorCode) -> KafkaError:
        """Return an error of the transactions as clients of this version know it."""
        for client_error in self.flow.client_errors.get(error, ()):
            if self.version >= client_error.since:
                return KafkaError(client_error.code, client_error.message)
        return KafkaError(error)

    def _verify(self, places: Sequence[TopicPartition], *, adds: bool) -> ErrorCode:
        return self.transactions.verify(
            self.transactional_id, self.producer_id, self.producer_epoch, places, adds=adds
        )


def fenced_in(version: int, error: ErrorCode, *, since: int) -> ErrorCode:
    """Return `error` as this version expresses it: before version `since`, PRODUCER_FENCED was
    INVALID_PRODUCER_EPOCH (KIP-588).
    """
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error
