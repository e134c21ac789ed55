"""The codecs of record batches in one table, with a limit on the size to which a block may inflate.

Inflating is streaming: a block comes out in pieces, and `decompress` stops at the first one that
passes the limit. A batch of 1 MB that inflates to 1 GB costs at most twice the limit in memory
(while pieces are joined) and ends in DecodeError, as do a truncated block and bytes after its end.
`decompress_steps` is the same with a pause after every MiB, for callers on an event loop.

Codec libraries are imported on first use, which keeps them out of the start-up time.

Snappy has two forms. Java writes it in xerial's framing (a magic, then blocks, each after its
length), others write one raw block. Both are read; framing is written, because every client reads
it. Kafka has no limit of this kind and trusts that max.message.bytes of compressed data is enough.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterator

from kohort.protocol.errors import DecodeError, InflatedTooLargeError
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.varint import Buffer, read_uvarint

INFLATED_BYTES_LIMIT = 64 << 20
"""Default limit of the inflated size of one batch. Clients build batches of 16 KiB to 1 MiB before
compression; only those that limit the compressed size come near this."""

PIECE_BYTES = 1 << 20
"""Bytes inflated between two pauses, if the codec allows a choice."""


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compress a records block.

    `level` is on the library's own scale, None its default; snappy has none.
    """
    if codec is CompressionType.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: CompressionType, data: Buffer, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> bytes | memoryview:
    """Decompress the records block of a batch; for CompressionType.NONE a view of `data` itself."""
    steps = decompress_steps(codec, data, limit_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            block: bytes | memoryview = done.value
            return block


def decompress_steps(
    codec: CompressionType, data: Buffer, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> Generator[None, None, bytes | memoryview]:
    """Decompress like `decompress`, yielding after every PIECE_BYTES, and return the block."""
    if codec is CompressionType.NONE:
        return data if isinstance(data, bytes) else memoryview(data)
    pieces: list[bytes] = []
    left, pause_at = limit_bytes, limit_bytes - PIECE_BYTES
    for piece in _DECOMPRESSORS[codec](data, limit_bytes):
        left -= len(piece)
        if left < 0:
            raise _too_big(codec, limit_bytes)
        pieces.append(piece)
        if left < pause_at:
            pause_at = left - PIECE_BYTES
            yield
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_big(codec: CompressionType, limit_bytes: int) -> InflatedTooLargeError:
    return InflatedTooLargeError(
        f"{codec.name.lower()} block inflates to more than {limit_bytes} bytes"
    )


def _cut_short(codec: CompressionType) -> DecodeError:
    return DecodeError(f"{codec.name.lower()} block is cut short")


_GZIP_WBITS = 31
"""zlib's value for deflate in gzip's framing."""


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, _limit_bytes: int) -> Iterator[bytes]:
    """Inflate consecutive gzip members as one stream, as Java's reader and gzip itself do."""
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            while not member.eof:
                piece = member.decompress(rest, PIECE_BYTES)
                rest = member.unconsumed_tail
                if not (piece or rest or member.eof):
                    raise _cut_short(CompressionType.GZIP)
                yield piece
        except zlib.error as error:
            raise DecodeError(f"gzip block: {error}") from None
        rest = member.unused_data
        if not rest:
            return


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 << 10
"""xerial's default. Larger blocks would compress better, but readers may allocate by this size."""
_SNAPPY_GROWTH_MAX = 22
"""The maximum growth: the densest element, a copy, has 3 bytes for 64."""
_INT32 = struct.Struct(">i")


def _snappy(data: Buffer, _level: int | None) -> bytes:
    from cramjam import snappy  # noqa: PLC0415 - on first use, see above.

    out = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_INT32.pack(len(block)), block)
    return b"".join(out)


def _unsnappy(data: Buffer, limit_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _unsnappy_block(view, limit_bytes, limit_bytes)
        return
    left, position = limit_bytes, _XERIAL_HEADER.size
    if len(view) < position:
        raise _cut_short(CompressionType.SNAPPY)
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            raise _cut_short(CompressionType.SNAPPY)
        (length,) = _INT32.unpack_from(view, position)
        if not 0 < length <= len(view) - start:
            raise DecodeError(f"snappy block of {length} bytes where {len(view) - start} are left")
        position = start + length
        piece = _unsnappy_block(view[start:position], left, limit_bytes)
        left -= len(piece)
        yield piece


def _unsnappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    """Inflate one raw block. The library checks a block against its stated size, but allocates that
    size first.

    So a size that so few bytes cannot inflate to is refused here.
    """
    from cramjam import DecompressionError, snappy  # noqa: PLC0415 - on first use, see above.

    claimed, _ = read_uvarint(block, 0)
    if claimed > left:
        raise _too_big(CompressionType.SNAPPY, limit_bytes)
    if claimed > len(block) * _SNAPPY_GROWTH_MAX:
        raise DecodeError(f"snappy block of {len(block)} bytes claims to hold {claimed}")
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise DecodeError(f"snappy block: {error}") from None


def _lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame  # noqa: PLC0415 - on first use, see above.

    # Kafka's reader refuses linked blocks; 64 KiB is what its writer uses.
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
    )
    return compressed


def _unlz4(data: Buffer, _limit_bytes: int) -> Iterator[bytes]:
    from lz4 import frame  # noqa: PLC0415 - on first use, see above.

    rest: Buffer | None = data
    while rest:
        stream = frame.LZ4FrameDecompressor()
        try:
            while not stream.eof:
                if not rest and stream.needs_input:
                    raise _cut_short(CompressionType.LZ4)
                yield stream.decompress(rest, PIECE_BYTES)
                rest = b""
        except RuntimeError as error:
            raise DecodeError(f"lz4 block: {error}") from None
        rest = stream.unused_data
    if rest is data:
        raise _cut_short(CompressionType.LZ4)


_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10
"""Maximum inflated size of a block; even one of 4 bytes can inflate to as much."""
_ZSTD_RLE_BLOCK = 1
_UINT32_LE = struct.Struct("<I")


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard  # noqa: PLC0415 - on first use, see above.

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, _limit_bytes: int) -> Iterator[bytes]:
    """Inflate zstd. Its streams take no output limit, so they are fed a few blocks at a time."""
    import zstandard  # noqa: PLC0415 - on first use, see above.

    view = memoryview(data)
    position, whole = 0, False
    try:
        while position < len(view):
            stream = zstandard.ZstdDecompressor().decompressobj()
            for stop in _zstd_stops(view, position):
                yield stream.decompress(view[position:stop])
                position = stop
            whole = stream.eof
    except zstandard.ZstdError as error:
        raise DecodeError(f"zstd block: {error}") from None
    if not whole:
        raise _cut_short(CompressionType.ZSTD)


def _zstd_stops(view: memoryview, position: int) -> Iterator[int]:
    """Yield positions in a frame (RFC 8878) between which it inflates to at most PIECE_BYTES.

    Only sizes are read. The library finds errors in a frame; here a malformed one just ends.
    """
    try:
        (magic,) = _UINT32_LE.unpack_from(view, position)
        descriptor = view[position + 4]
        if magic != _ZSTD_MAGIC:
            raise DecodeError(f"zstd block with a frame of magic {magic:#x}")
        is_single_segment = descriptor >> 5 & 1
        position += 6 - is_single_segment + (0, 1, 2, 4)[descriptor & 3]
        position += (is_single_segment, 2, 4, 8)[descriptor >> 6]
        blocks, is_last = 0, 0
        while not is_last:
            if blocks == PIECE_BYTES // _ZSTD_BLOCK_BYTES:
                yield position
                blocks = 0
            block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            position += 3 + (1 if block >> 1 & 3 == _ZSTD_RLE_BLOCK else block >> 3)
            is_last = block & 1
            blocks += 1
        position += descriptor & 4  # The value of the checksum flag is also the checksum's size.
    except (IndexError, struct.error):
        position = len(view)
    yield min(position, len(view))


_COMPRESSORS: dict[CompressionType, Callable[[Buffer, int | None], bytes]] = {
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}

_DECOMPRESSORS: dict[CompressionType, Callable[[Buffer, int], Iterator[bytes]]] = {
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}
"""Each yields a block in pieces of bounded size, up to the limit."""
