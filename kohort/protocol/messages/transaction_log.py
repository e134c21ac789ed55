"""Records of __transaction_state: the coordinator's state of each transactional id.

The key is preceded by an int16 with the type of the record (0: transactional id), the value by an
int16 with the version of its layout. A null value deletes the id. Value v1 is flexible
(KIP-915), with the fields of KIP-890 as tags.
"""

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import Int8, Int16, Int32, Int64, String


@record(versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: String


@struct
class PartitionsSchema:
    topic: String
    partition_ids: list[Int32]


@record(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: Int64
    previous_producer_id: Int64 = field(default=-1, since=1, tag=0)
    """The producer id before this change of state."""
    next_producer_id: Int64 = field(default=-1, since=1, tag=1)
    """The producer id for the next transaction, if the epochs of the current id are used up."""
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(default=-1, since=1, tag=3)
    """Only with two-phase commits (KIP-939)."""
    transaction_timeout_ms: Int32
    transaction_status: Int8
    """The state, as a number: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort,
    4 CompleteCommit, 5 CompleteAbort."""
    transaction_partitions: list[PartitionsSchema] | None
    """Null in Empty."""
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(default=0, since=1, tag=2)
