"""Producer snapshots: the producer state of a log at an offset, in Kafka's format.

`<offset>.snapshot` has the state of idempotent producers from all batches below the offset, so that
a start only has to read later batches. A damaged or partly written file fails its checksum, and the
previous one is used.
"""

from collections.abc import Sequence
from struct import Struct

from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem, read_file
from kohort.broker.storage.layout import SNAPSHOT_SUFFIX, file_name
from kohort.protocol.records.crc import crc32c

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")
_VERSION = 1


def encode_snapshot(producers: Sequence[ProducerSnapshot]) -> bytes:
    body = b"".join(
        [_COUNT.pack(len(producers)), *(_PRODUCER.pack(*producer) for producer in producers)]
    )
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes, noted_sum: int | None = None) -> list[ProducerSnapshot]:
    """Decode a snapshot file. Raises CorruptFileError if it is damaged.

    Args:
        noted_sum: the recorded checksum, if known. The content does not say which partition and
            offset it belongs to, so only this checksum detects a snapshot of another partition or
            offset.
    """
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptFileError(f"a producer snapshot of {len(content)} bytes")
    version, crc = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if version != _VERSION or crc != crc32c(body):
        raise CorruptFileError(f"a producer snapshot of version {version} and a wrong checksum")
    if noted_sum not in {None, crc}:
        raise CorruptFileError("the producer snapshot of another offset or partition")
    (count,) = _COUNT.unpack_from(body)
    producers = body[_COUNT.size :]
    if len(producers) != count * _PRODUCER.size:
        raise CorruptFileError(f"{count} producers in {len(producers)} bytes")
    return [ProducerSnapshot(*fields) for fields in _PRODUCER.iter_unpack(producers)]


def write_snapshot(
    files: FileSystem, directory: str, offset: int, producers: Sequence[ProducerSnapshot]
) -> int:
    """Write the snapshot of an offset; return its checksum. The file is not synced: until the
    batches below `offset` are deleted, it can be rebuilt from them.
    """
    path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
    content = encode_snapshot(producers)
    replace_file(files, path, content, sync=False)
    checksum: int = _HEAD.unpack_from(content)[1]
    return checksum


def read_snapshot(
    files: FileSystem, directory: str, offset: int, noted_sum: int | None = None
) -> list[ProducerSnapshot]:
    """Read the snapshot of an offset; see `decode_snapshot`. Raises OSError, CorruptFileError."""
    path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
    return decode_snapshot(read_file(files, path), noted_sum)
