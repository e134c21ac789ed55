"""What client libraries once sent, damaged in ways that random bytes hardly ever are.

Half of it still parses: a field of a decoded request is replaced by an extreme of its type, a
record batch is damaged behind a checksum that is right. The rest is cut, lengthened or flipped as
`tests.fuzz.frames` does it. The frames were recorded by `tests.fuzz.record`.
"""

import gzip
import json
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort.broker.handlers import load_handlers
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError, EncodeError
from kohort.protocol.framing import read_request_prefix, skip_header_tags
from kohort.protocol.message import schema_of
from kohort.protocol.messages.produce import ProduceRequest
from kohort.protocol.records.crc import crc32c
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType
from tests.fuzz.frames import FrameFuzzer
from tests.support.network.wire import framed

CAPTURED: Final = Path(__file__).with_name("captured.jsonl.gz")
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
"""Where in a batch its checksum lies, and where begins what that is of."""

BATCH_HEADER_BYTES: Final = 61
BATCH_FIELDS: Final = (
    *((0, "q"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q")),
    *((35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")),
)
"""Where a batch has numbers, and how wide they are: offset, leader epoch, magic, attributes, last
offset delta, times, producer, its epoch and sequence, count."""

TEXTS: Final = ("", "\0", "x" * 32_767, "ü" * 16_383, "x" * 128, "\U0001f600", "consumer", "range")
BLOBS: Final = (b"", b"\0", bytes(2), b"\xff" * 40, bytes(70_000), b"\0\1\0\0\0\1\0\1t")
_BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


def range_of(kind: WireType) -> tuple[int, int]:
    """The least and the greatest integer of this type."""
    bits = _BITS[kind.name]
    low = 0 if kind.name[0] == "u" else -(1 << (bits - 1))
    return low, low + (1 << bits) - 1


class Captured(NamedTuple):
    """A frame that a client sent, without its size."""

    client: str
    frame: bytes


def captured() -> list[Captured]:
    """All frames, of apis and versions that are served."""
    apis = load_handlers()
    found = []
    with gzip.open(CAPTURED, "rt") as lines:
        for line in lines:
            one = json.loads(line)
            frame = bytes.fromhex(one["frame"])
            key, version = struct.unpack_from(">hh", frame)
            if key in apis and version in apis[key].versions:
                found.append(Captured(one["client"], frame))
    return found


class CapturedFuzzer(FrameFuzzer):
    """An endless supply of damaged frames, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._captured = captured()
        self._apis_by_key = load_handlers()
        self.topics = sorted({f"of-{client}" for client, _ in self._captured})

    def _frame(self) -> bytes:
        rng = self._rng
        frame = rng.choice(self._captured).frame
        chance = rng.random()
        if chance < 0.05:
            return framed(frame)
        if chance < 0.65:
            return framed(self._with_other_values(frame))
        body = bytearray(frame)
        rest = body[14:]
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            rng.choice(self._damages)(rest)
        body[14:] = rest
        return framed(bytes(body))

    def _with_other_values(self, frame: bytes) -> bytes:
        """The same request with one to three fields of other values, batches among them."""
        header, position = read_request_prefix(frame)
        request_class = self._apis_by_key[header.api_key].request
        version = header.api_version
        if schema_of(request_class).is_flexible(version):
            position = skip_header_tags(frame, position)
        request: Any
        try:
            request, _ = codec(request_class, version).decode(frame, position)
        except DecodeError:
            return frame
        if isinstance(request, ProduceRequest) and self._rng.random() < 0.8:
            self._damage_batches(request)
        else:
            for _ in range(self._rng.choice((1, 1, 2, 3))):
                self._replace_in(request, version)
        try:
            return frame[:position] + codec(request_class, version).encode(request)
        except EncodeError:
            return frame

    def _replace_in(self, message: Any, version: int) -> None:  # noqa: ANN401 - of any class.
        """Go down to some field, and replace it."""
        rng = self._rng
        while True:
            fields = [f for f in schema_of(type(message)).fields if version in f.versions]
            if not fields:
                return
            field = rng.choice(fields)
            value = getattr(message, field.name)
            if isinstance(field.kind, WireType) or not value or rng.random() < 0.1:
                setattr(message, field.name, self._extreme(field, version, value))
                return
            message = rng.choice(value) if field.is_array else value

    def _extreme(self, field: Field, version: int, value: object) -> object:
        rng, kind = self._rng, field.kind
        if version in field.nullable and rng.random() < 0.15:
            return None
        if field.is_array:
            elements = list(value) if isinstance(value, list) else []
            return rng.choice(([], elements * 2, elements * 50, elements[:1], elements[::-1]))
        if not isinstance(kind, WireType):
            return value
        if kind.name in _BITS:
            low, high = range_of(kind)
            number = rng.choice((low, low + 1, -1, 0, 1, 2, high - 1, high, rng.randint(low, high)))
            return min(max(number, low), high)
        choices: dict[str, tuple[object, ...]] = {
            "string": (*TEXTS, *self.topics, *self.member_ids),
            "bytes": BLOBS,
            "records": BLOBS,
            "bool": (not value,),
            "uuid": (bytes(16), b"\xff" * 16, *self.topic_ids),
        }
        return rng.choice(choices.get(kind.name, (value,)))

    def _damage_batches(self, request: ProduceRequest) -> None:
        """Do harm to a batch, and have its checksum say that it is in order."""
        rng = self._rng
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is None or len(data.records) < BATCH_HEADER_BYTES:
                    continue
                batch = bytearray(data.records)
                for _ in range(rng.choice((1, 1, 2, 4))):
                    self._damage_batch(batch)
                if rng.random() < 0.9 and len(batch) > BATCH_HEADER_BYTES:
                    struct.pack_into(">i", batch, 8, len(batch) - 12)
                if len(batch) > CHECKED_FROM:
                    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
                data.records = bytes(batch)

    def _damage_batch(self, batch: bytearray) -> None:
        rng = self._rng
        chance = rng.random()
        if chance < 0.4 and len(batch) >= BATCH_HEADER_BYTES:
            at, width = rng.choice(BATCH_FIELDS)
            bits = 8 * struct.calcsize(width)
            high = (1 << (bits - 1)) - 1
            value = rng.choice((-high - 1, -1, 0, 1, high, high - 1, rng.randint(0, 16)))
            struct.pack_into(f">{width}", batch, at, value)
            return
        rest = batch[BATCH_HEADER_BYTES:]
        rng.choice(self._damages)(rest)
        batch[BATCH_HEADER_BYTES:] = rest
