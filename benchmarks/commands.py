"""`kohort consume` and `kohort produce` beside kcat, each as a whole: its start, its work, its end.

A Kohort holds a topic for each kind of record, and then a Kafka does, if there is one. Before time
is taken, what the two print is compared, byte by byte. Then they take turns, and print into
nothing: no reader holds them up. kcat is Debian's; both are used as their manuals say, with no
setting changed.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.brokers import Contender, Kohort
from benchmarks.harness import Bench, Figure, Measured, Pair, Row, figures, progress

TITLE: Final = "Commands: ours beside kcat's"

AIM: Final = 0.5
"""Times kcat's records per second."""

_RECORDS: Final = 1_000_000
_BATCH_BYTES: Final = 16 << 10
"""What Java's producer sends by default."""
_PROBE_EVERY: Final = 997
_FORMAT: Final = r"%o %k %h %s\n"


class Kind(NamedTuple):
    """What a topic is full of."""

    value_bytes: int
    has_more: bool
    """Keys and headers, which are printed too."""

    @property
    def name(self) -> str:
        size = f"{self.value_bytes // 1_000} kB" if self.value_bytes >= 1_000 else "100 B"
        return f"{size} with key and headers" if self.has_more else size

    @property
    def topic(self) -> str:
        return f"commands-{self.value_bytes}{'-more' if self.has_more else ''}"


KINDS: Final = tuple(Kind(size, more) for size in (100, 1_000) for more in (False, True))


class Commands:
    """What is typed, for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def read(self, kind: Kind) -> tuple[list[str], list[str]]:
        """Ours and kcat's."""
        form = ["-f", _FORMAT] if kind.has_more else []
        ours = ["consume", kind.topic, "--from-beginning", "--exit", *form]
        theirs = ["-C", "-q", "-e", "-o", "beginning", "-t", kind.topic, *form]
        return self._ours(ours), self._theirs(theirs)

    def write(self, topic: str, lines: Path) -> tuple[list[str], list[str]]:
        """Ours, which gets the lines on its standard input, and kcat's."""
        return self._ours(["produce", topic]), self._theirs(["-P", "-t", topic, "-l", str(lines)])

    def forget(self, topic: str) -> list[str]:
        """Deletes a topic."""
        return self._ours(["topics", "delete", topic])

    def _ours(self, arguments: Sequence[str]) -> list[str]:
        where = ["--bootstrap-server", self._bootstrap]
        return [sys.executable, "-m", "kohort.cli", *arguments, *where]

    def _theirs(self, arguments: Sequence[str]) -> list[str]:
        return ["kcat", "-b", self._bootstrap, *arguments]


def measure(bench: Bench) -> Iterable[Row]:
    if shutil.which("kcat") is None:
        raise RuntimeError("kcat is not installed")
    kinds = bench.wanted(KINDS, lambda kind: kind.name)
    count = int(bench.scaled(_RECORDS, least=100))
    for contender in bench.contenders:
        with contender.start(bench.directory / "commands") as broker:
            broker.wait_serving()
            commands = Commands(f"127.0.0.1:{broker.port}")
            for kind in kinds:
                progress(f"  {contender.name}: writing {kind.name}")
                _fill(f"127.0.0.1:{broker.port}", kind, count)
                _compare(*commands.read(kind))
            yield from _consumed(commands, contender, bench, kinds, count)
            yield from _produced(commands, contender, bench, kinds, count)


def _consumed(
    commands: Commands, contender: Contender, bench: Bench, kinds: Sequence[Kind], count: int
) -> Iterator[Row]:
    results: dict[tuple[Kind, bool], list[Measured]] = {}
    for run in range(bench.runs):
        for kind in kinds:
            progress(f"  {contender.name}, run {run + 1} of {bench.runs}: reading {kind.name}")
            for is_ours, command in zip((True, False), commands.read(kind), strict=True):
                results.setdefault((kind, is_ours), []).append(_timed(command, count))
    progress("")
    for kind in kinds:
        yield from _rows(
            f"consume {kind.name}", contender, results[kind, True], results[kind, False]
        )


def _produced(
    commands: Commands, contender: Contender, bench: Bench, kinds: Sequence[Kind], count: int
) -> Iterator[Row]:
    for kind in kinds:
        if kind.has_more:
            continue
        lines = bench.directory / "lines"
        with lines.open("wb") as file:
            file.writelines(_value(kind, number) + b"\n" for number in range(count))
        results: tuple[list[Measured], list[Measured]] = ([], [])
        for run in range(bench.runs):
            progress(f"  {contender.name}, run {run + 1} of {bench.runs}: writing {kind.name}")
            topic = f"written-{kind.value_bytes}"
            written = commands.write(topic, lines)
            for command, into in zip(written, results, strict=True):
                into.append(_timed(command, count, lines))
                subprocess.run(commands.forget(topic), check=True, stdout=subprocess.DEVNULL)
        progress("")
        yield from _rows(f"produce {kind.name}", contender, *results)


def _rows(
    what: str, contender: Contender, ours: list[Measured], theirs: list[Measured]
) -> Iterator[Row]:
    where = "" if contender.name == Kohort.name else f", with {contender.name}"
    both: tuple[dict[str, Figure], dict[str, Figure]] = (figures(ours), figures(theirs))
    speed, cpu = (Pair(both[0][name], both[1][name]) for name in ("speed", "cpu"))
    yield Row(f"{what}{where}: kohort / kcat", "records/s", speed, "more", AIM)
    yield Row(f"{what}{where}: kohort / kcat", "CPU s per million", cpu)


def _value(kind: Kind, number: int) -> bytes:
    return _values(kind.value_bytes)[number % _PROBE_EVERY]


@cache
def _values(size: int) -> list[bytes]:
    source = random.Random(size)
    words = [b"%x" % source.getrandbits(40) for _ in range(3_000)]
    return [b" ".join(source.choices(words, k=size // 9 + 1))[:size] for _ in range(_PROBE_EVERY)]


def _fill(bootstrap: str, kind: Kind, count: int) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - loaded where records are written.

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": _BATCH_BYTES,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    for number in range(count):
        more: dict[str, Any] = {}
        if kind.has_more:
            more = {"key": b"key-%d" % number, "headers": [("source", b"bench"), ("more", b"1")]}
        producer.produce(kind.topic, _value(kind, number), partition=0, **more)
        if not number % 1_000:
            producer.poll(0)
        if not number % 100_000:
            producer.flush(60)
    if producer.flush(120):
        raise RuntimeError("not all records could be written")


def _compare(ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Raises RuntimeError where the two do not print the same."""
    printed = [_digest(command) for command in (ours, theirs)]
    if printed[0] != printed[1]:
        raise RuntimeError(f"{' '.join(ours)} and {' '.join(theirs)} print different things")


def _digest(command: Sequence[str]) -> str:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = hashlib.file_digest(process.stdout, "sha256").hexdigest()  # type: ignore[arg-type]
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return found


def _timed(command: Sequence[str], count: int, lines: Path | None = None) -> Measured:
    before_s = _children_s()
    began_s = time.perf_counter()
    with (lines or Path(os.devnull)).open("rb") as given:
        subprocess.run(command, check=True, stdin=given, stdout=subprocess.DEVNULL)
    took_s = time.perf_counter() - began_s
    cpu_s = _children_s() - before_s
    return {"speed": count / took_s, "cpu": cpu_s / count * 1e6}


def _children_s() -> float:
    """Return the processor time of all children that have ended, to the microsecond."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
