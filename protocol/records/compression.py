"""The five codecs of record batches behind one table, with a limit on what a block may inflate to.

`decompress` stops at the limit: a batch of 1 MB that claims to hold 1 GB costs no more memory than the
limit allows (at most twice the limit for a moment, while the pieces are joined) and raises
DecodeError, as do truncated blocks and bytes behind the end of one. The codec libraries are imported
on first use: a broker that stores batches unopened never loads them, and starts faster.

Snappy is the odd one. Java writes it in xerial's framing (a magic, then blocks each behind its
length), other clients write one raw block; both are read, and framing is written, which every client
reads. Prior art for the limit: Kafka has none and trusts max.message.bytes of the compressed batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from protocol.errors import DecodeError, EncodeError
from protocol.records.batch import Codec
from protocol.records.varint import Buffer, read_uvarint

INFLATED_BYTES_LIMIT = 64 << 20
"""What one batch may inflate to unless the caller says otherwise; clients bound the uncompressed size
of a batch at 1 MB by default, and a broker must survive many such batches at once."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """The records block as `codec` stores it; `level` is the library's own scale, None its default."""
    return _TABLE[codec][0](data, level)


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> bytes | memoryview:
    """The records block behind a batch header; for Codec.NONE the given bytes themselves."""
    return _TABLE[codec][1](data, limit_bytes)


class _Inflater(Protocol):
    """What zlib's and lz4's decompression objects have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...


def _too_big(codec: Codec, limit_bytes: int) -> DecodeError:
    return DecodeError(f"{codec.name.lower()} block inflates to more than {limit_bytes} bytes")


def _inflate(codec: Codec, start: Callable[[], _Inflater], data: Buffer, limit_bytes: int) -> bytes:
    """Inflate all streams that follow each other in `data`; Java's readers join them likewise."""
    pieces: list[bytes] = []
    left = limit_bytes
    rest: Buffer = data
    while True:
        stream = start()
        piece = stream.decompress(rest, left + 1)
        if len(piece) > left:
            raise _too_big(codec, limit_bytes)
        if not stream.eof:
            raise DecodeError(f"{codec.name.lower()} block is cut short")
        pieces.append(piece)
        left -= len(piece)
        rest = stream.unused_data or b""
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _store(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _unstore(data: Buffer, limit_bytes: int) -> bytes | memoryview:
    if len(data) > limit_bytes:
        raise _too_big(Codec.NONE, limit_bytes)
    return data if isinstance(data, bytes) else memoryview(data)


_GZIP_WBITS = 31
"""zlib's way to say: deflate in gzip's framing."""


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    try:
        return _inflate(Codec.GZIP, lambda: zlib.decompressobj(_GZIP_WBITS), data, limit_bytes)
    except zlib.error as error:
        raise DecodeError(f"gzip block: {error}") from None


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 << 10
"""xerial's own default. Larger blocks would pack better, but readers may allocate by this size."""
_INT32 = Struct(">i")


def _snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    out = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_INT32.pack(len(block)), block)
    return b"".join(out)


def _unsnappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, limit_bytes, limit_bytes)
    if len(view) < _XERIAL_HEADER.size:
        raise DecodeError("snappy framing header is cut short")
    pieces: list[bytes] = []
    left, position = limit_bytes, _XERIAL_HEADER.size
    while position < len(view):
        block, position = _xerial_block(view, position)
        piece = _unsnappy_block(block, left, limit_bytes)
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _xerial_block(view: memoryview, position: int) -> tuple[memoryview, int]:
    start = position + _INT32.size
    if start > len(view):
        raise DecodeError("snappy block length is cut short")
    (length,) = _INT32.unpack_from(view, position)
    if not 0 < length <= len(view) - start:
        raise DecodeError(f"snappy block of {length} bytes where {len(view) - start} are left")
    return view[start : start + length], start + length


def _unsnappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    """A block starts with the size it inflates to, and the library holds it to that."""
    from cramjam import DecompressionError, snappy

    claimed, _ = read_uvarint(block, 0)
    if claimed > left:
        raise _too_big(Codec.SNAPPY, limit_bytes)
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise DecodeError(f"snappy block: {error}") from None


def _lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    # Kafka's own reader wants independent blocks; 64 KiB is what Kafka's writer uses.
    return bytes(
        frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
        )
    )


def _unlz4(data: Buffer, limit_bytes: int) -> bytes:
    from lz4 import frame

    try:
        return _inflate(Codec.LZ4, frame.LZ4FrameDecompressor, data, limit_bytes)
    except RuntimeError as error:
        raise DecodeError(f"lz4 block: {error}") from None


_ZSTD_GROWTH_MAX = 32 << 10
"""A zstd block of 4 bytes can stand for 128 KiB, and none can stand for more in less."""
_ZSTD_CHUNK_MIN = 64


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, limit_bytes: int) -> bytes:
    """Fed in chunks, as the library has no output limit: a chunk's output can only be so large."""
    import zstandard

    view = memoryview(data)
    chunk_bytes = max(_ZSTD_CHUNK_MIN, limit_bytes // _ZSTD_GROWTH_MAX)
    pieces: list[bytes] = []
    left, position = limit_bytes, 0
    try:
        stream = zstandard.ZstdDecompressor().decompressobj()
        while position < len(view):
            chunk = view[position : position + chunk_bytes]
            position += len(chunk)
            piece = stream.decompress(chunk)
            left -= len(piece)
            if left < 0:
                raise _too_big(Codec.ZSTD, limit_bytes)
            pieces.append(piece)
            if stream.eof:
                position -= len(stream.unused_data)
                if position < len(view):
                    stream = zstandard.ZstdDecompressor().decompressobj()
    except zstandard.ZstdError as error:
        raise DecodeError(f"zstd block: {error}") from None
    if not stream.eof:
        raise DecodeError("zstd block is cut short")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_Compress = Callable[[Buffer, int | None], bytes]
_Decompress = Callable[[Buffer, int], bytes | memoryview]

_TABLE: dict[Codec, tuple[_Compress, _Decompress]] = {
    Codec.NONE: (_store, _unstore),
    Codec.GZIP: (_gzip, _gunzip),
    Codec.SNAPPY: (_snappy, _unsnappy),
    Codec.LZ4: (_lz4, _unlz4),
    Codec.ZSTD: (_zstd, _unzstd),
}
