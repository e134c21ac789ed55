"""What the fuzz tests send: requests that make sense, and what random damage makes of them."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from kohort.broker.handlers import load_handlers
from kohort.protocol.codec import codec
from kohort.protocol.message import schema_of
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType
from tests.support.network.wire import framed, header

TOPICS: Final = ("fuzz-a", "fuzz-b", "fuzz-new", "__consumer_offsets", "", "../x", "ü" * 40)
GROUPS: Final = ("group-a", "group-b", "", "g" * 200)
INTEGERS: Final = (0, 1, -1, 2, 5, 100, -2, 127, 32_767, 2**31 - 1, -(2**31), 6_000, 30_000)
STRINGS: Final = ("", "consumer", "range", "member-1", "retention.ms", "1000", "x" * 300, "\x00")

_BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_LENGTHS: Final = (
    *(struct.pack(">i", value) for value in (0, -1, 1, 2**31 - 1, -(2**31), 0x7FFF)),
    *(struct.pack(">h", value) for value in (0, -1, 1, 2**15 - 1, -(2**15))),
    *(struct.pack(">b", value) for value in (0, -1, 1, 127, -128)),
    *(struct.pack(">q", value) for value in (-1, 2**63 - 1)),
    # The largest uvarint, one beyond 32 bits, one without an end, and zero in two bytes.
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x10",
    b"\xff" * 11,
    b"\x80\x00",
)


def _batches() -> tuple[bytes, ...]:
    """Batches that are in order; damage is done to them later, with the rest."""
    plain = [Record(b"value"), Record(None, key=b"key")]
    return (
        encode_batch(plain),
        encode_batch([Record(bytes(5_000), key=b"key")]),
        encode_batch(plain, producer_id=1_000, producer_epoch=0, base_sequence=0),
        b"",
        b"not a batch",
    )


class FrameFuzzer:
    """An endless supply of bytes to send, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._batches = _batches()
        self.topics: Sequence[str] = TOPICS[:2]
        """There should be those, though damaged requests may delete them."""
        self.topic_ids: list[bytes] = []
        """Ids of topics that exist, for the versions that name topics by id."""
        self.member_ids: list[str] = []
        """Ids of members that exist, or did."""
        self._apis = [
            (api.request, version)
            for api in load_handlers().values()
            for version in range(api.versions.low, api.versions.high + 1)
        ]
        self._damages: tuple[Callable[[bytearray], None], ...] = (
            self._flip_bits,
            self._set_bytes,
            self._write_length,
            self._cut_out,
            self._repeat,
            self._truncate,
            self._append,
        )

    def next_bytes(self) -> bytes:
        """One frame, or what is left of it, or several."""
        chance = self._rng.random()
        if chance < 0.03:
            return self._rng.randbytes(self._rng.randrange(1, 200))
        if chance < 0.06:
            return b"".join(self._frame() for _ in range(self._rng.randrange(2, 12)))
        if chance < 0.08:
            frame = bytearray(self._frame())
            frame[0:4] = struct.pack(">i", len(frame) - 4 + self._rng.choice((-3, -1, 1, 7)))
            return bytes(frame)
        if chance < 0.09:
            return self._rng.choice(_LENGTHS) + self._rng.randbytes(20)
        return self._frame()

    def cuts(self, size: int) -> list[int]:
        """Where to cut `size` bytes on their way; mostly nowhere."""
        if size < 2 or self._rng.random() < 0.8:
            return []
        return sorted(self._rng.sample(range(1, size), min(size - 1, self._rng.randrange(1, 6))))

    def _frame(self) -> bytes:
        request, version = self._rng.choice(self._apis)
        body = bytearray(self._request(request, version))
        # Damage to the header mostly ends in the same place; there should be some and not much.
        spared = 0 if self._rng.random() < 0.15 else 14
        damage = self._rng.random()
        if damage < 0.6:
            rest = body[spared:]
            for _ in range(self._rng.choice((1, 1, 1, 2, 3, 8))):
                self._rng.choice(self._damages)(rest)
            body[spared:] = rest
        elif damage < 0.63:
            # Another api or version for the same bytes.
            body[0:4] = struct.pack(">hh", self._rng.randrange(-1, 80), self._rng.randrange(-1, 20))
        return framed(bytes(body))

    def _request(self, request: type, version: int) -> bytes:
        schema = schema_of(request)
        assert schema.key is not None
        client_id = self._rng.choice((b"fuzz", b"", None, b"c" * 255))
        begin = header(
            schema.key,
            version,
            correlation_id=self._rng.randrange(1 << 31),
            client_id=client_id,
            tags=b"\x00" if schema.is_flexible(version) else b"",
        )
        message = self._message(request, version)
        return begin + codec(request, version).encode(message)

    def _message(self, message: type, version: int) -> Any:  # noqa: ANN401 - of any class.
        fields = [f for f in schema_of(message).fields if version in f.versions]
        return message(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Field, version: int) -> object:
        if version in field.nullable and self._rng.random() < 0.2:
            return None
        if field.is_array:
            count = self._rng.choice((0, 1, 1, 1, 2, 5))
            return [self._element(field, version) for _ in range(count)]
        return self._element(field, version)

    def _element(self, field: Field, version: int) -> object:
        kind = field.kind
        if not isinstance(kind, WireType):
            return self._message(kind, version)
        if kind.name in _BITS:
            return self._integer(field.name, _BITS[kind.name], is_signed=kind.name[0] != "u")
        rng = self._rng
        choices: dict[str, Sequence[object]] = {
            "string": self._names(field.name),
            "bool": (False, True),
            "records": self._batches,
            "uuid": (bytes(16), rng.randbytes(16), *self.topic_ids),
            "float64": (0.5, -1.0),
            "bytes": (b"", rng.randbytes(20), bytes(300)),
        }
        return rng.choice(choices[kind.name])

    def _names(self, field_name: str) -> Sequence[str]:
        if field_name == "member_id" and self.member_ids:
            return self.member_ids
        if "topic" in field_name or field_name in {"name", "resource_name"}:
            return TOPICS
        if "group" in field_name or field_name == "key":
            return GROUPS
        return STRINGS

    def _integer(self, field_name: str, bits: int, *, is_signed: bool) -> int:
        if "index" in field_name or "partition" in field_name:
            value = self._rng.choice((0, 0, 0, 1, 3, -1, 2**31 - 1))
        elif field_name == "max_wait_ms":
            value = self._rng.choice((0, 0, 1, 20, 2**31 - 1, -1))
        else:
            value = self._rng.choice(INTEGERS)
        if not is_signed:
            return value & ((1 << bits) - 1)
        half = 1 << (bits - 1)
        return (value + half) % (2 * half) - half

    # Damage.

    def _flip_bits(self, body: bytearray) -> None:
        for _ in range(self._rng.choice((1, 1, 3, 20))):
            if body:
                body[self._rng.randrange(len(body))] ^= 1 << self._rng.randrange(8)

    def _set_bytes(self, body: bytearray) -> None:
        if body:
            at = self._rng.randrange(len(body))
            body[at] = self._rng.choice((0, 1, 0x7F, 0x80, 0xFF, self._rng.randrange(256)))

    def _write_length(self, body: bytearray) -> None:
        length = self._rng.choice(_LENGTHS)
        at = self._rng.randrange(len(body) + 1)
        body[at : at + len(length)] = length

    def _cut_out(self, body: bytearray) -> None:
        at = self._rng.randrange(len(body) + 1)
        del body[at : at + self._rng.choice((1, 2, 4, 30))]

    def _repeat(self, body: bytearray) -> None:
        at = self._rng.randrange(len(body) + 1)
        piece = body[at : at + self._rng.choice((1, 4, 30, 200))]
        body[at:at] = piece * self._rng.choice((1, 2, 50))

    def _truncate(self, body: bytearray) -> None:
        del body[self._rng.randrange(len(body) + 1) :]

    def _append(self, body: bytearray) -> None:
        body += self._rng.randbytes(self._rng.choice((1, 5, 100)))
