"""How one type of record in the groups' log is encoded. Each kind of group declares the codecs of
its own records, and :mod:`kohort.groups.encoding` has the table of all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord
from kohort.groups.steps import Steps

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


def _no_headers(record: Any) -> RecordHeaders:  # noqa: ANN401 - see RecordCodec.
    del record
    return ()


class RecordCodec(NamedTuple):
    record_types: tuple[type[Any], ...]
    tombstone_types: tuple[type[Any], ...]
    """The classes of tombstones, which delete a key. The functions accept classes of both kinds."""
    key_versions: tuple[int, ...]
    """The versions that its keys begin with, which are unique to it."""
    encode_key: Callable[[Any], bytes]
    encode_value: Callable[[Any], bytes | None]
    """Raises EncodeError."""
    decode: Callable[[bytes, bytes | None, RecordHeaders], DurableRecord]
    """Decodes a key with its value and headers. Raises DecodeError."""
    encode_headers: Callable[[Any], RecordHeaders] = _no_headers
    """Encodes what does not fit in Kafka's value."""
    kind: GroupKind | None = None
    """The kind of group whose membership is restored from these records; None for offsets."""
    is_large: Callable[[Any], bool] | None = None
    """Whether a record should be encoded in steps; None if it never is."""
    has_many_bytes: Callable[[Any], bool] | None = None
    """Whether a record should be encoded in another thread than the event loop's; None if none
    should."""
    value_steps: Callable[[Any], Steps[bytes | None]] | None = None
    """Encodes a large value like `encode_value`, in steps."""
