"""The producer of a request with a transactional id, and what the transactions say of it (KIP-890).

Produce and TxnOffsetCommit go the same way: wait until nothing of the producer's id is on its way,
have the partitions verified, and, from a version on, add them to the transaction. They differ in
that version, and in what clients of each version are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.broker.core.transaction.requests import Client, TopicPartition
from kohort.broker.runtime.later import Later
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.errors import ErrorCode, KafkaError


class Told(NamedTuple):
    """What clients are told in place of an error of the transactions."""

    code: ErrorCode
    message: str | None = None
    since: int = 0
    """Version of the API from which they are."""


class Flow(NamedTuple):
    """What is particular to an API."""

    adds_since: int
    """Version from which its requests add partitions themselves."""
    told: Mapping[ErrorCode, Sequence[Told]]
    """Errors that are told differently, newest versions first; others are told as they are."""


class TransactionalProducer(NamedTuple):
    """The producer of one request."""

    transactions: Transactions
    flow: Flow
    version: int
    """Version of the request."""
    transactional_id: str
    producer_id: int
    producer_epoch: int
    client: Client

    @property
    def adds(self) -> bool:
        """Whether its requests add partitions to the transaction."""
        return self.version >= self.flow.adds_since

    def settling(self) -> Later[None] | None:
        """To be waited for before anything else; None if there is nothing to wait for."""
        return self.transactions.settling(self.transactional_id, adds=self.adds)

    def verify(self, places: Sequence[TopicPartition], *, adds: bool = False) -> ErrorCode:
        """Whether these partitions are in the transaction, or with `adds` may be added to it: NONE,
        or what is told.
        """
        error = self._verify(places, adds=adds)
        return error and self.told(error).code

    def check(self, places: Sequence[TopicPartition], *, adds: bool) -> None:
        """Verify, and raise what is told as a KafkaError."""
        error = self._verify(places, adds=adds)
        if error:
            raise self.told(error)

    def add(self, places: Sequence[TopicPartition]) -> Later[None] | None:
        """Add partitions to the transaction, like `Transactions.add`; errors are to be `told`."""
        return self.transactions.add(
            self.transactional_id, self.producer_id, self.producer_epoch, places, self.client
        )

    def told(self, error: ErrorCode) -> KafkaError:
        """What the transactions have said, as clients of this version know it."""
        for told in self.flow.told.get(error, ()):
            if self.version >= told.since:
                return KafkaError(told.code, told.message)
        return KafkaError(error)

    def _verify(self, places: Sequence[TopicPartition], *, adds: bool) -> ErrorCode:
        return self.transactions.verify(
            self.transactional_id, self.producer_id, self.producer_epoch, places, adds=adds
        )
