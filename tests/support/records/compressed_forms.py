"""Compressed blocks in all forms that clients write, and in forms that not all clients read."""

import gzip
import struct
import zlib
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

import lz4.block
import lz4.frame
import zstandard
from cramjam import snappy

from kohort.protocol.records.batch import CompressionType


class Readers(Enum):
    ALL = auto()
    """Java, librdkafka and franz-go."""
    SOME = auto()
    """Java, and with it Kafka's broker, but not all others."""
    NOT_JAVA = auto()
    """Not Java; perhaps others."""


class Form(NamedTuple):
    """One way to compress a block. As a test's parameter its name is its id."""

    name: str
    codec: CompressionType
    readers: Readers
    compress: Callable[[bytes], bytes]

    def __str__(self) -> str:
        return self.name


Compress = Callable[[bytes], bytes]

_SKIPPABLE: Final = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data)


def _gzip_named(data: bytes) -> bytes:
    member = gzip.compress(data)
    return member[:3] + b"\x08" + member[4:10] + b"name.txt\x00" + member[10:]


def _raw_snappy(data: bytes) -> bytes:
    return bytes(snappy.compress_raw(data))


def _xerial(data: bytes, versions: bytes = struct.pack(">ii", 1, 1), size: int = 1 << 15) -> bytes:
    blocks = [_raw_snappy(data[start : start + size]) for start in range(0, len(data), size)]
    return (
        b"\x82SNAPPY\x00"
        + versions
        + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    )


def _lz4(**options: object) -> Compress:
    def compress(data: bytes) -> bytes:
        compressed: bytes = lz4.frame.compress(data, **{"block_linked": False, **options})
        return compressed

    return compress


def _lz4_flagged(flag: int) -> Compress:
    """A frame whose header has other flags, and a checksum that is right."""

    def compress(data: bytes) -> bytes:
        descriptor = bytes([0x60 ^ flag, 0x70]) + (b"\x07\x00\x00\x00" if flag & 1 else b"")
        block: bytes = lz4.block.compress(data, store_size=False)
        check = xxh32(descriptor) >> 8 & 0xFF
        head = struct.pack("<I", 0x184D2204) + descriptor + bytes([check])
        return head + struct.pack("<I", len(block)) + block + bytes(4)

    return compress


def xxh32(data: bytes) -> int:
    """Return the xxHash-32 of fewer than 16 bytes, with seed 0."""
    mask, (p1, p2, p3, p4, p5) = 0xFFFFFFFF, _XXH_PRIMES
    value, position = (p5 + len(data)) & mask, 0
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        value = (value + word * p3) & mask
        value = ((value << 17 | value >> 15) & mask) * p4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * p5) & mask
        value = ((value << 11 | value >> 21) & mask) * p1 & mask
    value = (value ^ value >> 15) * p2 & mask
    value = (value ^ value >> 13) * p3 & mask
    return value ^ value >> 16


_XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def _zstd(*, size: bool = True, checksum: bool = False) -> Compress:
    return lambda data: zstandard.ZstdCompressor(
        write_content_size=size, write_checksum=checksum
    ).compress(data)


def _zstd_stream(window_log: int) -> Compress:
    def compress(data: bytes) -> bytes:
        parameters = zstandard.ZstdCompressionParameters(
            window_log=window_log, write_content_size=False
        )
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return stream.compress(data) + stream.flush()

    return compress


def _halves(compress: Compress) -> Compress:
    return lambda data: compress(data[: len(data) // 2]) + compress(data[len(data) // 2 :])


def _before(prefix: bytes, compress: Compress) -> Compress:
    return lambda data: prefix + compress(data)


def _behind(compress: Compress, suffix: bytes) -> Compress:
    return lambda data: compress(data) + suffix


_GZIP, _SNAPPY = CompressionType.GZIP, CompressionType.SNAPPY
_LZ4, _ZSTD = CompressionType.LZ4, CompressionType.ZSTD
_64_KIB: Final = lz4.frame.BLOCKSIZE_MAX64KB

FORMS: Final = (
    Form("gzip", _GZIP, Readers.ALL, _gzip),
    Form("gzip with a name", _GZIP, Readers.ALL, _gzip_named),
    Form("gzip of two members", _GZIP, Readers.SOME, _halves(_gzip)),
    Form("gzip and an empty member", _GZIP, Readers.SOME, _behind(_gzip, gzip.compress(b""))),
    Form("gzip and a zero byte", _GZIP, Readers.SOME, _behind(_gzip, b"\x00")),
    Form("gzip and the start of a member", _GZIP, Readers.SOME, _behind(_gzip, b"\x1f\x8b")),
    Form(
        "gzip and the header of a member",
        _GZIP,
        Readers.SOME,
        _behind(_gzip, gzip.compress(b"")[:10]),
    ),
    Form("gzip and garbage", _GZIP, Readers.SOME, _behind(_gzip, b"garbage " * 20)),
    Form(
        "gzip and a member of garbage",
        _GZIP,
        Readers.NOT_JAVA,
        _behind(_gzip, b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00" + b"\xff" * 40),
    ),
    Form(
        "gzip with a wrong CRC",
        _GZIP,
        Readers.NOT_JAVA,
        lambda data: _gzip(data)[:-8] + b"\x00\x01\x02\x03" + _gzip(data)[-4:],
    ),
    Form("zlib for gzip", _GZIP, Readers.NOT_JAVA, zlib.compress),
    Form("snappy, raw", _SNAPPY, Readers.ALL, _raw_snappy),
    Form("snappy, xerial", _SNAPPY, Readers.ALL, _xerial),
    Form("snappy, small blocks", _SNAPPY, Readers.ALL, lambda data: _xerial(data, size=64)),
    Form(
        "snappy, versions in the wrong byte order",
        _SNAPPY,
        Readers.ALL,
        lambda data: _xerial(data, struct.pack("<ii", 1, 1)),
    ),
    Form("snappy, version 0", _SNAPPY, Readers.ALL, lambda data: _xerial(data, bytes(8))),
    Form("snappy, two streams", _SNAPPY, Readers.SOME, _halves(_xerial)),
    Form("snappy and a header", _SNAPPY, Readers.SOME, _behind(_xerial, _xerial(b""))),
    Form("snappy and a zero byte", _SNAPPY, Readers.SOME, _behind(_xerial, b"\x00")),
    Form("snappy and an empty block", _SNAPPY, Readers.NOT_JAVA, _behind(_xerial, bytes(4))),
    Form("snappy, raw, and a zero byte", _SNAPPY, Readers.NOT_JAVA, _behind(_raw_snappy, b"\x00")),
    Form(
        "snappy's own frames", _SNAPPY, Readers.NOT_JAVA, lambda data: bytes(snappy.compress(data))
    ),
    Form("lz4", _LZ4, Readers.ALL, _lz4(block_size=_64_KIB)),
    Form("lz4 of 4 MiB blocks", _LZ4, Readers.ALL, _lz4(block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    Form(
        "lz4 with checksums",
        _LZ4,
        Readers.ALL,
        _lz4(content_checksum=True, block_checksum=True, block_size=_64_KIB),
    ),
    Form("lz4 without its size", _LZ4, Readers.ALL, _lz4(store_size=False)),
    Form("lz4 of linked blocks", _LZ4, Readers.NOT_JAVA, _lz4_flagged(0x20)),
    Form("lz4 with a dictionary", _LZ4, Readers.NOT_JAVA, _lz4_flagged(0x01)),
    Form("lz4 with a reserved flag", _LZ4, Readers.NOT_JAVA, _lz4_flagged(0x02)),
    Form("lz4, two frames", _LZ4, Readers.NOT_JAVA, _halves(_lz4())),
    Form("lz4 behind a skippable frame", _LZ4, Readers.NOT_JAVA, _before(_SKIPPABLE, _lz4())),
    Form("lz4 before a skippable frame", _LZ4, Readers.SOME, _behind(_lz4(), _SKIPPABLE)),
    Form("lz4 and an empty frame", _LZ4, Readers.SOME, lambda data: _lz4()(data) + _lz4()(b"")),
    Form("lz4 and a zero byte", _LZ4, Readers.SOME, _behind(_lz4(), b"\x00")),
    Form("lz4 and garbage", _LZ4, Readers.SOME, _behind(_lz4(), b"garbage " * 20)),
    Form(
        "lz4 without a frame", _LZ4, Readers.NOT_JAVA, lambda data: bytes(lz4.block.compress(data))
    ),
    Form("zstd", _ZSTD, Readers.ALL, _zstd()),
    Form("zstd without its size", _ZSTD, Readers.ALL, _zstd(size=False)),
    Form("zstd with a checksum", _ZSTD, Readers.ALL, _zstd(checksum=True)),
    Form("zstd, two frames", _ZSTD, Readers.ALL, _halves(_zstd())),
    Form("zstd behind a skippable frame", _ZSTD, Readers.ALL, _before(_SKIPPABLE, _zstd())),
    Form("zstd before a skippable frame", _ZSTD, Readers.ALL, _behind(_zstd(), _SKIPPABLE)),
    Form("zstd with a window of 2^27", _ZSTD, Readers.ALL, _zstd_stream(27)),
    Form("zstd with a window of 2^28", _ZSTD, Readers.NOT_JAVA, _zstd_stream(28)),
    Form("zstd and a zero byte", _ZSTD, Readers.NOT_JAVA, _behind(_zstd(), b"\x00")),
)
