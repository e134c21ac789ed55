"""``kohort produce``: appends a record for each line of input to a topic, exactly once.

Batches are sent when they are full or when no further line is ready, so typed lines are sent one by
one, and those of a file in batches of a megabyte.
"""

import argparse
import fcntl
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from kohort.admin.cluster import RefusedError
from kohort.admin.producing import Producer
from kohort.cli.commands import exit_codes, run
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.records import RecordError, from_line
from kohort.protocol.errors import EncodeError, ErrorCode
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.record import Headers, Record

Parse: TypeAlias = Callable[[bytes], tuple[Record, int | None]]
"""Parses a line, without line end, to a record and its partition or None. Raises RecordError."""

LINE_END: Final = b"\n"
READ_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 << 20
PROGRESS_S: Final = 2.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Appends a record for each line of standard input, or of a file. A line is the record's "
        "value, or its key and value, or (--json) a record as `kohort consume --json` prints it."
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", default="-", metavar="FILE", help="input file (standard input)")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", metavar="TEXT", help="key of all records (no keys)")
    keys.add_argument("--key-separator", metavar="TEXT", help="separator of a line's key and value")
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="a key or value equal to this is null"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="header of all records; repeatable",
    )
    parser.add_argument("--partition", type=int, metavar="N", help="partition of all records")
    parser.add_argument(
        "--compression", choices=CODECS, default="none", help="compression of batches (%(default)s)"
    )
    add_kafka(parser)
    parser.set_defaults(run=run, handler=_produce)
    parser.epilog = exit_codes("no such topic")


def _produce(options: argparse.Namespace) -> None:
    parse = _parser(options)
    with cluster_of(options) as cluster, _opened(options.file) as descriptor:
        try:
            producer = Producer(
                cluster,
                options.topic,
                timeout_s=options.timeout,
                codec=CompressionType[options.compression.upper()],
            )
            if options.partition is not None and not (
                0 <= options.partition < producer.partition_count
            ):
                raise NotFoundError(
                    f"{options.topic} has no partition {options.partition}; it has "
                    f"{producer.partition_count}"
                )
            _send(options, producer, parse, descriptor)
        except RefusedError as error:
            if error.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NotFoundError(
                    f"there is no topic {options.topic!r}; create it with `kohort topics create "
                    f"{options.topic}`"
                ) from error
            raise
    if options.json:
        print_json(
            {
                "topic": options.topic,
                "records": producer.sent_records,
                "bytes": producer.sent_bytes,
            }
        )


def _send(options: argparse.Namespace, producer: Producer, parse: Parse, descriptor: int) -> None:
    progress = _Progress(producer)
    number = 0
    try:
        for text, is_more_ready in _texts(descriptor):
            for line in text.split(LINE_END):
                number += 1
                _add(producer, *parse(line), options.partition)
            if not is_more_ready:
                producer.flush()
            progress.print_if_due()
        producer.flush()
    except (RecordError, EncodeError) as error:
        producer.flush()
        raise UsageError(
            f"line {number}: {error}; the {number - 1} lines before it were sent"
        ) from error
    except KeyboardInterrupt:
        producer.flush()
        raise
    finally:
        progress.end()


def _add(producer: Producer, record: Record, named: int | None, wanted: int | None) -> None:
    """Add the record to the partition `wanted` (--partition), else to `named` (in its line), else
    let the producer choose. Raises RecordError, EncodeError.
    """
    if wanted is None and named is not None and not 0 <= named < producer.partition_count:
        raise RecordError(f"the topic has no partition {named}; omit it to choose one by the key")
    producer.add(record, named if wanted is None else wanted)


def _parser(options: argparse.Namespace) -> Parse:
    headers = _headers(options.header)
    if options.json:
        if options.key is not None:
            raise UsageError("--json and --key cannot be combined: each record has its own key")
        return _from_json
    marker = None if options.null_marker is None else os.fsencode(options.null_marker)
    separator = None if options.key_separator is None else os.fsencode(options.key_separator)
    key = None if options.key is None else os.fsencode(options.key)
    if separator == b"":
        raise UsageError("--key-separator must not be empty")

    def content(text: bytes) -> bytes | None:
        return None if text == marker else text

    def plain(line: bytes) -> tuple[Record, int | None]:
        return Record(content(line), key, headers, _now_ms()), None

    def keyed(line: bytes) -> tuple[Record, int | None]:
        key, present, value = line.partition(separator or b"")
        if not present:
            raise RecordError(f"no {options.key_separator!r} in the line")
        return Record(content(value), content(key), headers, _now_ms()), None

    return plain if separator is None else keyed


def _from_json(line: bytes) -> tuple[Record, int | None]:
    record, partition = from_line(line)
    return (record if record.timestamp >= 0 else record._replace(timestamp=_now_ms())), partition


def _now_ms() -> int:
    return int(time.time() * 1000)


def _headers(texts: list[str]) -> Headers:
    headers = []
    for text in texts:
        name, equals, content = text.partition("=")
        if not equals:
            raise UsageError(f"--header {text}: expected NAME=VALUE")
        headers.append((name, os.fsencode(content)))
    return tuple(headers)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == "-":
        descriptor = sys.stdin.fileno()
        with suppress(OSError, AttributeError):
            # Enlarge a pipe to a whole batch. Fails for other files, and outside Linux.
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, READ_BYTES)
        yield descriptor
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"--file: {path!r} cannot be read: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _texts(descriptor: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the complete lines of each read, without the final line end, and whether more input can
    be read without waiting.
    """
    begun = bytearray()
    while data := os.read(descriptor, READ_BYTES):
        whole, end, rest = data.rpartition(LINE_END)
        if end:
            yield bytes(begun + whole), bool(select.select([descriptor], [], [], 0)[0])
            begun.clear()
        begun += rest
        if len(begun) > LINE_BYTES_MAX:
            raise UsageError(f"a line is longer than {LINE_BYTES_MAX >> 20} MiB")
    if begun:
        yield bytes(begun), False


class _Progress:
    """Progress on standard error, if that is a terminal and the input is not."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._begun_s = self._printed_s = time.monotonic()
        self._is_wanted = sys.stderr.isatty() and not sys.stdin.isatty()

    def print_if_due(self) -> None:
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            self._print("\r")

    def end(self) -> None:
        if self._is_wanted:
            self._print("\n")

    def _print(self, end: str) -> None:
        sent, seconds = self._producer.sent_records, time.monotonic() - self._begun_s
        rate = sent / seconds if seconds else 0
        records = "1 record" if sent == 1 else f"{sent:,} records"
        print(f"\r{records}, {rate:,.0f}/s", end=end, file=sys.stderr, flush=True)
