"""``kohort dump-log``: the batches of segment files, in the format of ``kafka-dump-log.sh``."""

import argparse
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from kohort.cli.commands import run
from kohort.cli.errors import NotFoundError
from kohort.formats.text import shown
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    BatchHeader,
    TimestampType,
    crc_matches,
    iter_headers,
)
from kohort.protocol.records.control import decode_marker
from kohort.protocol.records.record import Record, decode_records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the batches of segment files, 00000000000000000000.log and so on, of Kohort or "
        "Kafka. A broker may be writing to them. A batch with isvalid: false differs from its CRC."
    )
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--records", action="store_true", help="print the records, too")
    parser.set_defaults(run=run, handler=_dump)
    parser.epilog = "Exit codes: 0; 1 no such file, or not a whole number of batches; 2 usage."


def _dump(options: argparse.Namespace) -> None:
    for path in options.files:
        data = _contents(path)
        print(f"Dumping {shown(path)}")
        try:
            _print_batches(data, with_records=options.records)
        except DecodeError as error:
            raise NotFoundError(f"{path}: {error}") from error


def _contents(path: str) -> memoryview:
    """Memory-map a file, which may exceed the RAM. Raises NotFoundError."""
    if segments := sorted(Path(path).glob("*.log")):
        raise NotFoundError(f"{path} is a directory; its segments are {segments[0]} and so on")
    try:
        with Path(path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from error


def _print_batches(data: memoryview, *, with_records: bool) -> None:
    for position, header in iter_headers(data):
        print(_batch_line(data, position, header))
        if with_records:
            batch = data[position : position + header.size_bytes]
            for line in _record_lines(batch, header):
                print(line)


def _batch_line(data: memoryview, position: int, header: BatchHeader) -> str:
    horizon = f"[{header.base_timestamp}]" if header.has_delete_horizon else ".empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.record_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_flag(header.is_transactional)}"
        f" isControl: {_flag(header.is_control)} deleteHorizonMs: OptionalLong{horizon}"
        f" position: {position} {_time_name(header)}: {header.max_timestamp}"
        f" size: {header.size_bytes} magic: {header.magic}"
        f" compresscodec: {header.codec.name.lower()} crc: {header.crc}"
        f" isvalid: {_flag(crc_matches(data, header, position))}"
    )


def _record_lines(batch: memoryview, header: BatchHeader) -> Iterator[str]:
    marker = decode_marker(batch, header) if header.is_control else None
    for record in decode_records(batch, header):
        sequence = header.base_sequence
        if sequence >= 0:
            sequence += record.offset - header.base_offset
        names = ",".join(name for name, _ in record.headers)
        line = (
            f"| offset: {record.offset} {_time_name(header)}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            f" sequence: {sequence} headerKeys: [{shown(names)}]"
        )
        if marker is not None:
            yield (
                f"{line} endTxnMarker: {marker.control_type.name} coordinatorEpoch: "
                f"{marker.coordinator_epoch}"
            )
        else:
            yield line + _content(record)


def _content(record: Record) -> str:
    parts = (("key", record.key), ("payload", record.value))
    return "".join(
        f" {name}: {shown(data.decode(errors='backslashreplace'))}"
        for name, data in parts
        if data is not None
    )


def _time_name(header: BatchHeader) -> str:
    is_append = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return "LogAppendTime" if is_append else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _flag(value: bool) -> str:  # noqa: FBT001 - formats it.
    return "true" if value else "false"
