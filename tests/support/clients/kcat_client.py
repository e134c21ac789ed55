"""kcat as Debian ships it, on librdkafka 2.0.2: the oldest client of the matrix."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import IO

from tests.support.clients.model import (
    ANY_SEAT,
    CONSUMED_WITHIN_S,
    MAX_REQUEST_BYTES,
    Client,
    Codec,
    Record,
    Seat,
)
from tests.support.clients.threads import ThreadMember
from tests.support.processes import java_env

# Nothing that the tests send contains these.
_END_OF_MESSAGE = "<~message~>"
_END_OF_KEY = "<~key~>"

_FORMAT = r"%p %o %T %K %S\n%k\n%s\n%h\n"
"""Lengths first, so that keys and values may hold anything; -1 is null."""


def kcat() -> str:
    return shutil.which("kcat") or shutil.which("kafkacat") or java_env.missing("kcat is not here")


class KcatClient(Client):
    name = "kcat"
    sets_timestamps = False
    leaves_at_any_time = False  # A signal makes it drop, unprinted, what it has already taken.

    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None:
        # Headers, partition and null-ness hold for all messages of one run.
        for _options, run in itertools.groupby(records, key=_producer_options):
            messages = list(run)
            self._run(
                # -E: not to give up when a connection ends.
                *("-P", "-E", "-t", topic),
                *_producer_options(messages[0]),
                *("-X", f"compression.codec={codec}"),
                *("-X", f"enable.idempotence={str(idempotent).lower()}"),
                *("-X", "acks=all", "-X", "linger.ms=5"),
                *("-X", f"message.max.bytes={MAX_REQUEST_BYTES}"),
                stdin=_END_OF_MESSAGE.encode().join(_line(message) for message in messages),
            )

    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        command = self._command("-C", "-t", topic, "-o", "beginning", "-c", str(count))
        try:
            output = subprocess.run(
                [*command, "-u", "-q", "-f", _FORMAT],
                check=True,
                capture_output=True,
                timeout=timeout_s,
            ).stdout
        except subprocess.TimeoutExpired as expired:
            output = expired.output or b""
        parser = _Parser()
        return parser.feed(output)

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        listing = json.loads(self._run("-L", "-J", "-t", topic))
        partitions = [entry["partition"] for entry in listing["topics"][0]["partitions"]]
        wanted = [f"-t{topic}:{partition}:{timestamp_ms}" for partition in partitions]
        answer = self._run("-Q", *wanted).decode()
        found = re.findall(r"\[(\d+)\] offset (-?\d+)", answer)
        return {int(number): int(at) if int(at) >= 0 else None for number, at in found}

    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> "KcatMember":
        options = {
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": "300",
            "session.timeout.ms": str(seat.session_timeout_ms),
        }
        if seat.client_id is not None:
            options["client.id"] = seat.client_id
        if seat.instance_id is not None:
            options["group.instance.id"] = seat.instance_id
        settings = itertools.chain(*(("-X", f"{name}={value}") for name, value in options.items()))
        command = self._command("-G", group, "-u", "-f", _FORMAT, *settings, topic)
        return KcatMember(command)

    def _command(self, *arguments: str) -> list[str]:
        return [kcat(), "-b", self.bootstrap, *arguments]

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            self._command(*arguments), input=stdin, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout


class KcatMember(ThreadMember):
    """librdkafka commits what kcat has printed when partitions are taken and at its end."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output: IO[bytes] = self._process.stdout
        self._news: IO[bytes] = self._process.stderr
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        super().__init__()

    def poll_until(self, leaving: threading.Event) -> None:
        parser = _Parser()
        while chunk := self._output.read1(65536):  # type: ignore[attr-defined]
            self.took(parser.feed(chunk))
        code = self._process.wait()
        self._listener.join()
        self._output.close()
        self._news.close()
        assert leaving.is_set(), f"kcat ended: {code}, {self._said}"

    def leave(self) -> None:
        if not self._leaving.is_set():
            self._leaving.set()
            self._process.send_signal(signal.SIGTERM)
        super().leave()

    def _listen(self) -> None:
        for raw in self._news:
            line = raw.decode(errors="replace")
            self._said.append(line)
            if "assigned:" in line:
                self.holds({int(number) for number in re.findall(r"\[(\d+)\]", line)})
            elif "revoked:" in line:
                self.holds(set())


class _Parser:
    """Turns kcat's output, in chunks of any size, into records."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Record]:
        self._rest += chunk
        records = []
        while (record := self._next()) is not None:
            records.append(record)
        return records

    def _next(self) -> Record | None:
        head, newline, body = self._rest.partition(b"\n")
        if not newline:
            return None
        partition, offset, timestamp, key_size, value_size = map(int, head.split())
        key_end = max(key_size, 0)
        value_start = key_end + 1
        value_end = value_start + max(value_size, 0)
        headers_end = body.find(b"\n", value_end + 1)
        if headers_end < 0:
            return None
        self._rest = body[headers_end + 1 :]
        return Record(
            value=None if value_size < 0 else body[value_start:value_end],
            key=None if key_size < 0 else body[:key_end],
            headers=_headers(body[value_end + 1 : headers_end]),
            timestamp_ms=timestamp,
            partition=partition,
            offset=offset,
        )


def _headers(text: bytes) -> tuple[tuple[str, bytes], ...]:
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return tuple((name.decode(), value) for name, _equals, value in pairs)


def _producer_options(record: Record) -> list[str]:
    options = ["-D", _END_OF_MESSAGE]
    if record.partition is not None:
        options += ["-p", str(record.partition)]
    for name, value in record.headers:
        options += ["-H", f"{name}={value.decode()}"]
    if record.key is not None:
        options += ["-K", _END_OF_KEY]
    if record.value is None:
        # Empty becomes null, so an empty key cannot go with a null value.
        assert record.key != b""
        options.append("-Z")
    return options


def _line(record: Record) -> bytes:
    value = record.value or b""
    return value if record.key is None else record.key + _END_OF_KEY.encode() + value
