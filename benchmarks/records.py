"""What a record costs on its way in and out: validating, inflating, decoding and building batches.

Records are of words from a small vocabulary, which compress about as well as real ones.
"""

import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from benchmarks.harness import Bench, Measured, Row
from kohort.broker.config.topic import TopicConfig
from kohort.broker.core.partition.validation import validate
from kohort.broker.core.partition.verdict import (
    ProduceTerms,
    ValidBatch,
)
from kohort.protocol.records.batch import CompressionType, crc_matches, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records, inflate

TITLE: Final = "Records, 1 MB batches"

_BATCH_BYTES: Final = 1_000_000
_NOW_MS: Final = 1_700_000_000_000
_TERMS: Final = ProduceTerms(9, acks=-1, has_transactional_id=False, wall_ms=_NOW_MS)
_REPEATS: Final = 5
_PER_MB: Final = "ms per MB"


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(_measure_all)
    for name, figure in figures.items():
        yield Row(name, "us per record" if name.endswith("records") else _PER_MB, figure)


def _measure_all() -> Measured:
    topic = TopicConfig()
    measured: dict[str, float] = {}
    for value_bytes in (100, 1_000):
        records = _records(value_bytes)
        batch = memoryview(encode_batch(records))
        kind = f"{value_bytes} B records"
        seconds = _best(partial(_validate, batch, topic))
        measured[f"validate, {value_bytes} B values"] = seconds * 1e3
        per_record = 1e6 / len(records)
        measured[f"decode {kind}"] = _best(partial(decode_records, batch)) * per_record
        measured[f"build {kind}"] = _best(partial(encode_batch, records)) * per_record
        if decode_records(batch)[-1].value != records[-1].value:
            raise RuntimeError("records came back changed")
        header = read_header(batch)
        measured[f"crc, {value_bytes} B values"] = _best(partial(crc_matches, batch, header)) * 1e3
    for codec in CompressionType:
        batch = memoryview(encode_batch(_records(100), codec=codec))
        header = read_header(batch)
        seconds = _best(partial(inflate, batch, header))
        measured[f"inflate, {codec.name.lower()}"] = seconds * 1e3
    return measured


def _records(value_bytes: int) -> list[Record]:
    source = random.Random(value_bytes)
    words = [b"%x" % source.getrandbits(40) for _ in range(3_000)]
    return [
        Record(
            b" ".join(source.choices(words, k=value_bytes // 10 + 1))[:value_bytes],
            b"key-%d" % number,
            timestamp=_NOW_MS + number // 10,
        )
        for number in range(_BATCH_BYTES // (value_bytes + 16))
    ]


def _validate(batch: memoryview, topic: TopicConfig) -> None:
    if not isinstance(validate(batch, topic, _TERMS), ValidBatch):
        raise TypeError("a good batch was refused")


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs: the rest is what else the machine did."""
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
