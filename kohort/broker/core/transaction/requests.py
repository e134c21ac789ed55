"""Requests to a transactional id and their results, independent of wire versions."""

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.core.transaction.client import Client
from kohort.groups.requests import Ticket, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.control import ControlType

__all__ = ["Ticket", "TopicPartition"]

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
"""Used in markers only: a client's last epoch is one less."""
EXHAUSTED_EPOCH: Final = EPOCH_MAX - 1
"""A producer with this epoch is exhausted: its next transaction gets a new producer id."""
NEVER_TIMES_OUT_MS: Final = 2_147_483_647
"""Timeout in the record of a transaction with two-phase commit (KIP-939)."""
ID_BYTES_MAX: Final = 32_767
"""Maximum length of a transactional id in UTF-8: it is the key of its records."""


class ClientVersion(IntEnum):
    """The transaction version of the request that wrote a record (KIP-890)."""

    V1 = 0
    V2 = 2
    """The end of a transaction raises the epoch, and Produce adds partitions implicitly."""


class TransactionConfig(NamedTuple):
    """The part of the broker's configuration that the rules read; defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


class InitRequest(NamedTuple):
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    """`producer_id` and `producer_epoch` are both -1 if the producer has no id yet."""
    client: Client | None = None


class InitResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AddRequest(NamedTuple):
    """Partitions to add to the transaction; without partitions, the transaction only begins."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: ClientVersion
    client: Client | None = None


class EndRequest(NamedTuple):
    """EndTxn; `client_version` is V2 from request version 5 on."""

    producer_id: int
    producer_epoch: int
    result: ControlType
    client_version: ClientVersion


EndResult: TypeAlias = InitResult
"""An error, or the producer id and epoch for the next transaction; only EndTxn v5 returns these."""
