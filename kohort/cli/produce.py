"""``kohort produce``: a record from each line, appended to a topic exactly once.

Lines are sent when no more of them are ready, or a batch is full: typed lines go out one by one,
those of a file in batches of a megabyte.
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
from kohort.cli.commands import run
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.record_json import RecordError, from_line
from kohort.protocol.errors import EncodeError, ErrorCode
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.record import Headers, Record

Parse: TypeAlias = Callable[[bytes], tuple[Record, int | None]]
"""A line without its end to a record and the partition that it names. Raises RecordError."""

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
    parser.add_argument(
        "--file", default="-", metavar="FILE", help="to read, instead of standard input"
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="a line is KEY, this, VALUE; no key without it"
    )
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="a key or value that is just this is null"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of all records; may be given several times",
    )
    parser.add_argument("--partition", type=int, metavar="N", help="where all records go")
    parser.add_argument(
        "--compression", choices=CODECS, default="none", help="of the batches (%(default)s)"
    )
    add_kafka(parser)
    parser.set_defaults(run=run, execute=execute)
    parser.epilog = (
        "Exit codes: 0; 1 there is no such topic; 2 usage; 3 no broker answers, or it refuses."
    )


def execute(options: argparse.Namespace) -> None:
    """Raises CommandError."""
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
                    f"there is no topic {options.topic!r}; `kohort topics create "
                    f"{options.topic}` makes it"
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
    """Take a record to the partition that is wanted for all, or that it names.

    Raises RecordError, EncodeError.
    """
    if wanted is None and named is not None and not 0 <= named < producer.partition_count:
        raise RecordError(f"the topic has no partition {named}; without one the key decides")
    producer.add(record, named if wanted is None else wanted)


def _parser(options: argparse.Namespace) -> Parse:
    """Return the function that makes records of lines."""
    headers = _headers(options.header)
    if options.json:
        return _from_json
    marker = None if options.null_marker is None else os.fsencode(options.null_marker)
    separator = None if options.key_separator is None else os.fsencode(options.key_separator)
    if separator == b"":
        raise UsageError("--key-separator: at least one character is wanted")

    def content(text: bytes) -> bytes | None:
        return None if text == marker else text

    def plain(line: bytes) -> tuple[Record, int | None]:
        return Record(content(line), None, headers, _now_ms()), None

    def keyed(line: bytes) -> tuple[Record, int | None]:
        key, found, value = line.partition(separator or b"")
        if not found:
            raise RecordError(f"there is no {options.key_separator!r} in it")
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
            raise UsageError(f"--header {text}: NAME=VALUE is wanted")
        headers.append((name, os.fsencode(content)))
    return tuple(headers)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == "-":
        descriptor = sys.stdin.fileno()
        with suppress(OSError, AttributeError):
            # A pipe that holds a batch; what is no pipe, or elsewhere than on Linux, stays.
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
    """Yield whole lines as they arrive, without the end of the last, and whether more can be read
    at once.
    """
    begun = bytearray()
    while data := os.read(descriptor, READ_BYTES):
        whole, end, rest = data.rpartition(LINE_END)
        if end:
            yield bytes(begun + whole), bool(select.select([descriptor], [], [], 0)[0])
            begun.clear()
        begun += rest
        if len(begun) > LINE_BYTES_MAX:
            raise UsageError(f"a line of more than {LINE_BYTES_MAX >> 20} MiB is no record")
    if begun:
        yield bytes(begun), False


class _Progress:
    """What is told on standard error while it lasts, where somebody may look at it."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._begun_s = self._told_s = time.monotonic()
        self._is_wanted = sys.stderr.isatty() and not sys.stdin.isatty()

    def print_if_due(self) -> None:
        """Say how far it is, now and then."""
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            self._print("\r")

    def end(self) -> None:
        """Say what was sent."""
        if self._is_wanted:
            self._print("\n")

    def _print(self, end: str) -> None:
        sent, seconds = self._producer.sent_records, time.monotonic() - self._begun_s
        rate = sent / seconds if seconds else 0
        records = "1 record" if sent == 1 else f"{sent:,} records"
        print(f"\r{records}, {rate:,.0f}/s", end=end, file=sys.stderr, flush=True)
