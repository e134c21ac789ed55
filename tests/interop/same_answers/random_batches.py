"""Random batches of every codec; any field of a header may be wrong."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from kohort.protocol.records.batch import (
    HEADER_BYTES,
    CompressionType,
    encode_header,
    read_header,
    seal,
)
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.record import Record
from tests.interop.same_answers.pair import SESSION_STARTED_MS
from tests.support.records.compressed_forms import FORMS, Form

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)


class RandomBatch(NamedTuple):
    """A batch to be sent."""

    data: bytes
    form: Form | None
    """The form of the compressed block, if it is not the usual one."""


def random_batch(rng: Random, *, is_old: bool) -> RandomBatch:
    """A batch whose records are hours old, or of any age."""
    records = [_record(rng, is_old=is_old) for _ in range(rng.choice((1, 2, 3, 3, 5, 8, 70)))]
    form = rng.choice(FORMS) if rng.random() < 0.2 else None
    if form is None:
        batch = encode_batch(records, codec=rng.choice(list(CompressionType)))
    else:
        plain = encode_batch(records)
        header = read_header(plain)._replace(attributes=int(form.codec))
        batch = assemble(header, form.compress(plain[HEADER_BYTES:]))
    header, payload = read_header(batch), batch[HEADER_BYTES:]
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        name = rng.choice(list(_LIES))
        header = header._replace(**{name: _LIES[name](rng, getattr(header, name))})
    batch, header = seal(header, payload)
    if rng.random() < 0.02:
        batch = encode_header(header._replace(crc=rng.getrandbits(32))) + payload
    return RandomBatch(batch, form)


def _record(rng: Random, *, is_old: bool) -> Record:
    return Record(
        rng.choice(
            (None, b"", b"value", b"words and words " * rng.randrange(20), rng.randbytes(50))
        ),
        None if rng.random() < 0.1 else b"key-%d" % rng.randrange(9),
        rng.choice(((), (), (("name", b"value"), ("other", None)))),
        random_timestamp(rng, _OLD if is_old else _ANY_AGE),
    )


_OLD: Final = ((-4 * HOUR_MS, -2 * HOUR_MS), (-23 * HOUR_MS, -20 * HOUR_MS))
_ANY_AGE: Final = (
    *[(-20 * MINUTE_MS, -5 * MINUTE_MS)] * 4,
    *[(-4 * HOUR_MS, -2 * HOUR_MS)] * 4,
    (10 * MINUTE_MS, 40 * MINUTE_MS),
    (-90 * 24 * HOUR_MS, -2 * 24 * HOUR_MS),
)
"""Ranges of time, relative to now. All limits of the topics are minutes away."""


def random_timestamp(rng: Random, ranges: Sequence[tuple[int, int]] = _ANY_AGE) -> int:
    rare = rng.random()
    if rare < 0.02:
        return SESSION_STARTED_MS + rng.randrange(3 * HOUR_MS, 50 * HOUR_MS)
    if rare < 0.06:
        return rng.choice((-1, -1, 0, 1, -2, -(1 << 40)))
    return SESSION_STARTED_MS + rng.randrange(*rng.choice(ranges))


def _near(extremes: Sequence[int]) -> Callable[[Random, int], int]:
    def lie(rng: Random, true: int) -> int:
        low, high = extremes[0], extremes[-1]
        near = min(max(true + rng.choice((-1, 1)), low), high)
        return rng.choice((near, near, *extremes, rng.randint(low, high)))

    return lie


def _timestamp(rng: Random, true: int) -> int:
    extremes = (_INT64_MIN, _INT64_MIN + 1, -1, 0, _INT64_MAX - 1, _INT64_MAX)
    if rng.random() < 0.2:
        return rng.choice((*extremes, rng.randint(_INT64_MIN, _INT64_MAX)))
    near = true - 1 if true == _INT64_MAX else true + 1
    return rng.choice((random_timestamp(rng), random_timestamp(rng), near))


_INT32: Final = (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1)
_INT16: Final = (-(1 << 15), -2, -1, 0, 1, (1 << 15) - 1)
_LIES: Final[dict[str, Callable[[Random, int], int]]] = {
    "base_offset": _near((_INT64_MIN, -1, 0, 1, _INT64_MAX)),
    "length": _near(_INT32),
    "partition_leader_epoch": _near(_INT32),
    "magic": lambda rng, _: rng.choice((-1, 0, 1, 3, 127)),
    "attributes": lambda rng, true: _signed(true ^ 1 << rng.randrange(16)),
    "last_offset_delta": _near(_INT32),
    "base_timestamp": _timestamp,
    "max_timestamp": _timestamp,
    "producer_id": _near((_INT64_MIN, -2, -1, 0, _INT64_MAX)),
    "producer_epoch": _near(_INT16),
    "base_sequence": _near(_INT32),
    "record_count": _near(_INT32),
}
"""Wrong values for each field."""


def _signed(bits: int) -> int:
    bits &= 0xFFFF
    return bits - (1 << 16) if bits >> 15 else bits
