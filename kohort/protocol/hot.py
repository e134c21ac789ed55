"""The messages whose codecs are compiled while the package is built, and what those depend on.

The compiled ones are made by `kohort/accelerated/codecs` and used by `kohort.protocol.codec`.
"""

from __future__ import annotations

from typing import Final

from kohort.protocol.constructs import ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, TEXT_BYTES_MAX
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType

READ: Final[dict[str, tuple[int, ...]]] = {
    "heartbeat.HeartbeatRequest": (3, 4),
    "offset_fetch.OffsetFetchRequest": (9, 10),
    "offset_commit.OffsetCommitRequest": (9, 10),
    "find_coordinator.FindCoordinatorRequest": (4, 6),
    "metadata.MetadataRequest": (12, 13),
    "join_group.JoinGroupRequest": (5, 9),
    "sync_group.SyncGroupRequest": (3, 5),
    "produce.ProduceRequest": (10, 11, 12, 13),
    "fetch.FetchRequest": (16, 17, 18),
    "add_partitions_to_txn.AddPartitionsToTxnRequest": (3,),
    "end_txn.EndTxnRequest": (4, 5),
    "txn_offset_commit.TxnOffsetCommitRequest": (4, 5),
}
"""What a broker reads: modules and classes of messages, and the versions that the clients of today
send."""

WRITTEN: Final[dict[str, tuple[int, ...]]] = {
    "offset_fetch.OffsetFetchResponse": (9, 10),
    "offset_commit.OffsetCommitResponse": (9, 10),
    "find_coordinator.FindCoordinatorResponse": (4, 6),
    "join_group.JoinGroupResponse": (5, 9),
    "sync_group.SyncGroupResponse": (3, 5),
    "produce.ProduceResponse": (10, 11, 12, 13),
    "fetch.FetchResponse": (16, 17, 18),
    "add_partitions_to_txn.AddPartitionsToTxnResponse": (3,),
    "end_txn.EndTxnResponse": (4, 5),
    "txn_offset_commit.TxnOffsetCommitResponse": (4, 5),
    "offsets_topic.OffsetCommitKey": (1,),
    "offsets_topic.OffsetCommitValue": (4,),
    "transaction_log.TransactionLogKey": (0,),
    "transaction_log.TransactionLogValue": (1,),
}
"""What it writes. Answers that are encoded once (Heartbeat, Metadata) would gain nothing."""


def is_hot(message: type, version: int, name: str) -> bool:
    """Whether `name` of a codec (`decode` or `encode_into`) may have been compiled."""
    table = READ if name == "decode" else WRITTEN
    known = table.get(f"{message.__module__.rpartition('.')[2]}.{message.__name__}", ())
    return version in known


def declared(message: type, version: int) -> str:
    """The declaration of `message` as far as it concerns `version`.

    Of a field that the version lacks the default counts as well, because a reader sets it.
    """
    schema = schema_of(message)
    flexible = "flexible" if schema.is_flexible(version) else "classic"
    elements_max = REQUEST_ELEMENTS_MAX if schema.is_request else ELEMENTS_MAX
    limits = f"{elements_max}/{TEXT_BYTES_MAX}"
    return f"{message.__module__} {flexible} {limits} {_fields(message, version)}"


def _fields(message: type, version: int) -> str:
    fields = ", ".join(_field(field, version) for field in schema_of(message).fields)
    return f"{message.__qualname__}({fields})"


def _field(field: Field, version: int) -> str:
    options, default = field.options, field.make_default()
    kind = field.kind.name if isinstance(field.kind, WireType) else _fields(field.kind, version)
    words = [field.name, kind]
    if isinstance(field.kind, WireType):
        # A lenient int8 is an int8 by name.
        words.append(str(field.kind.con(compact=False, nullable=False).__class__.__name__))
    flags = {
        "array": field.is_array,
        "null": version in field.nullable,
        "absent": version not in field.versions,
        "tagged": field.is_tagged(version),
        "ignorable": options.ignorable,
        "rigid": not options.flexible,
    }
    words += [flag for flag, holds in flags.items() if holds]
    words.append(f"tag {options.tag}")
    words.append("=" + (type(default).__name__ if isinstance(default, Struct) else repr(default)))
    return " ".join(words)
