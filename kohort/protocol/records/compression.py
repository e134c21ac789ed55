"""The codecs of record batches in one table, with a limit on the size to which a block may inflate.

Inflating is streaming: a block comes out in pieces, and `decompress` stops at the first one that
passes the limit. A batch of 1 MB that inflates to 1 GB costs at most twice the limit in memory
(while pieces are joined) and ends in DecodeError, as does a truncated block.

Clients differ in what they accept. `decompress` reads every block that a broker may have stored:
those that Java reads, and LZ4 frames that only liblz4 reads. `open_steps` is for the broker, which
must not store a block that some client cannot read: it accepts blocks that Java reads, and reports
whether librdkafka and franz-go read them as well. It pauses after every MiB, LZ4 block of
4 MiB, or 128 pieces, for callers on an event loop.

Codec libraries are imported on first use, which keeps them out of the start-up time.

Snappy has two forms. Java writes it in xerial's framing (a magic, then blocks, each after its
length), others write one raw block. Both are read; framing is written, because every client reads
it.

Kafka does not limit the inflated size, only the compressed size (max.message.bytes).
"""

import functools
import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kohort.protocol.errors import DecodeError, InflatedTooLargeError
from kohort.protocol.limits import INFLATED_BYTES_LIMIT
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.varint import Buffer, read_uvarint

PIECE_BYTES = 1 << 20
"""Bytes inflated between two yields, unless a single block of the codec is larger."""

_PIECE_COST_BYTES = PIECE_BYTES >> 7
"""Each piece counts as at least this many bytes until the next yield, because 1 MiB may consist of
100,000 empty streams, each of which takes about 20 us."""

_GZIP_INPUT_BYTES = 64 << 10
"""Compressed bytes passed to each call of zlib. At the end of each gzip member, zlib copies those
that it has not read."""

_COMPRESSED_STEP_BYTES = 128 << 10
"""Bytes compressed between two yields; gzip takes up to 5 ms for them."""

Compressor: TypeAlias = Callable[[Iterable[Buffer], int, int | None], Iterator[bytes]]
"""Takes the block in slices, its size, and the level of `compress`."""

_Inflating: TypeAlias = Generator[bytes, None, bool]
"""Yields a block in pieces of bounded size, and returns OpenedBlock.is_one_stream."""

Decompressor: TypeAlias = Callable[[Buffer, int], _Inflating]
"""Takes the compressed data and the limit of the inflated size."""


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compress a records block; `level` as in the library, None for its default."""
    if codec is CompressionType.NONE:
        return bytes(data)
    return b"".join(_COMPRESSORS[codec]((data,), len(data), level))


def compress_steps(codec: CompressionType, data: Buffer) -> Generator[None, None, bytes]:
    """Compress a records block, yielding after every _COMPRESSED_STEP_BYTES."""
    view = memoryview(data)
    starts = range(0, len(view), _COMPRESSED_STEP_BYTES)
    slices = (view[start : start + _COMPRESSED_STEP_BYTES] for start in starts)
    out: list[bytes] = []
    for piece in _COMPRESSORS[codec](slices, len(view), None):
        out.append(piece)
        yield
    return b"".join(out)


class OpenedBlock(NamedTuple):
    """A decompressed records block."""

    block: bytes | memoryview
    is_one_stream: bool
    """False if some clients cannot read the compressed block: librdkafka and franz-go accept only
    one gzip member, xerial stream or LZ4 frame, and nothing after it; Java accepts more."""


def decompress(
    codec: CompressionType, data: Buffer, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> bytes | memoryview:
    """Decompress the records block of a batch; for CompressionType.NONE a view of `data` itself."""
    steps = _decompress_steps(_DECOMPRESSORS, codec, data, limit_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            opened: OpenedBlock = done.value
            return opened.block


def open_steps(
    codec: CompressionType, data: Buffer, limit_bytes: int = INFLATED_BYTES_LIMIT
) -> Generator[None, None, OpenedBlock]:
    """Decompress a block that Java can read; yield after every PIECE_BYTES.

    Raises:
        DecodeError: the block is malformed, or Java cannot read it.
        InflatedTooLargeError: it inflates to more than `limit_bytes`.
    """
    return _decompress_steps(_JAVA_DECOMPRESSORS, codec, data, limit_bytes)


def _decompress_steps(
    decompressors: Mapping[CompressionType, Decompressor],
    codec: CompressionType,
    data: Buffer,
    limit_bytes: int,
) -> Generator[None, None, OpenedBlock]:
    if codec is CompressionType.NONE:
        return OpenedBlock(data if isinstance(data, bytes) else memoryview(data), True)
    pieces: list[bytes] = []
    left, until_pause = limit_bytes, PIECE_BYTES
    inflating = decompressors[codec](data, limit_bytes)
    is_one_stream = True
    while True:
        try:
            piece = next(inflating)
        except StopIteration as done:
            is_one_stream = done.value
            break
        left -= len(piece)
        if left < 0:
            raise _too_big(codec, limit_bytes)
        pieces.append(piece)
        until_pause -= max(len(piece), _PIECE_COST_BYTES)
        if until_pause < 0:
            until_pause = PIECE_BYTES
            yield
    return OpenedBlock(pieces[0] if len(pieces) == 1 else b"".join(pieces), is_one_stream)


def _too_big(codec: CompressionType, limit_bytes: int) -> InflatedTooLargeError:
    return InflatedTooLargeError(
        f"{codec.name.lower()} block inflates to more than {limit_bytes} bytes"
    )


def _cut_short(codec: CompressionType) -> DecodeError:
    return DecodeError(f"{codec.name.lower()} block is cut short")


_GZIP_WBITS = 31
"""zlib's value for deflate in gzip's framing."""


def _gzip(slices: Iterable[Buffer], _size_bytes: int, level: int | None) -> Iterator[bytes]:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
    for data in slices:
        yield compressor.compress(data)
    yield compressor.flush()


_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_MEMBER_BYTES_MIN = 18
"""Minimum size of a gzip member: its header and its trailer."""


def _gunzip(data: Buffer, _limit_bytes: int) -> _Inflating:
    """Inflate consecutive gzip members and ignore the bytes after them, as Java does."""
    view = memoryview(data)
    position = 0
    is_one_stream = True
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            while not member.eof:
                given = view[position : position + _GZIP_INPUT_BYTES]
                piece = member.decompress(given, PIECE_BYTES)
                position += len(given) - len(member.unconsumed_tail) - len(member.unused_data)
                if not (piece or given or member.eof):
                    raise _cut_short(CompressionType.GZIP)
                yield piece
        except zlib.error as error:
            raise DecodeError(f"gzip block: {error}") from None
        if position == len(view):
            return is_one_stream
        is_one_stream = False
        magic = view[position : position + len(_GZIP_MAGIC)]
        if len(view) - position <= _GZIP_MEMBER_BYTES_MIN or magic != _GZIP_MAGIC:
            return False


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 << 10
"""xerial's default. Larger blocks compress better, but readers may have buffers of this size."""
_SNAPPY_GROWTH_MAX = 22
"""Maximum ratio of inflated to compressed size: the densest element, a copy, is 3 bytes for 64."""
_INT32 = struct.Struct(">i")


def _snappy(slices: Iterable[Buffer], _size_bytes: int, _level: int | None) -> Iterator[bytes]:
    from cramjam import snappy  # noqa: PLC0415 - on first use, see above.

    yield _XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)
    for data in slices:
        view = memoryview(data)
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            yield _INT32.pack(len(block)) + block


def _unsnappy(data: Buffer, limit_bytes: int) -> _Inflating:
    """Inflate a raw block or xerial streams; ignore an incomplete block length at the end."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _unsnappy_block(view, limit_bytes, limit_bytes)
        return True
    left, position = limit_bytes, _XERIAL_HEADER.size
    if len(view) < position:
        raise _cut_short(CompressionType.SNAPPY)
    is_one_stream = True
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            return False
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            is_one_stream = False
            position += _XERIAL_HEADER.size
            if len(view) < position:
                raise _cut_short(CompressionType.SNAPPY)
            yield b""
            continue
        (length,) = _INT32.unpack_from(view, position)
        if not 0 < length <= len(view) - start:
            raise DecodeError(f"snappy block of {length} bytes where {len(view) - start} are left")
        position = start + length
        piece = _unsnappy_block(view[start:position], left, limit_bytes)
        left -= len(piece)
        yield piece
    return is_one_stream


def _unsnappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    """Inflate one raw block.

    The library allocates the size that the block states before it inflates the block, so a size
    that the block's bytes cannot inflate to is refused first.
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


def _lz4(slices: Iterable[Buffer], size_bytes: int, level: int | None) -> Iterator[bytes]:
    from lz4 import frame  # noqa: PLC0415 - on first use, see above.

    # Kafka's reader refuses linked blocks; 64 KiB is what its writer uses.
    compressor = frame.LZ4FrameCompressor(
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
    )
    yield compressor.begin(source_size=size_bytes)
    for data in slices:
        yield compressor.compress(data)
    yield compressor.flush()


_LZ4_MAGIC = 0x184D2204
_LZ4_START = struct.Struct("<IBB")
"""Start of a frame header: magic, flags and the maximum size of a block."""
_LZ4_HEADER_BYTES_MIN = 7
"""Size of the shortest frame header: magic, flags, block size and the header's checksum."""
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_SIZE_BIT = 0x08
_LZ4_CHECKSUM_BIT = 0x04
_LZ4_DICTIONARY_BIT = 0x01
_SKIPPABLE_MAGIC = 0x184D2A50
"""Magic of skippable frames, in LZ4 and in zstd; its lowest four bits may have any value."""
_SKIPPABLE_MASK = 0xFFFF_FFF0
_SKIPPABLE_START = struct.Struct("<II")
"""Start of a skippable frame: magic, and the size of its data."""
_UINT32_LE = struct.Struct("<I")


@functools.cache
def _lz4_header(block_size_id: int, *, is_linked: bool, has_block_checksums: bool) -> bytes:
    """Return a frame header without the content's size and checksum."""
    from lz4 import frame  # noqa: PLC0415 - on first use, see above.

    compressor = frame.LZ4FrameCompressor(
        block_size=block_size_id, block_linked=is_linked, block_checksum=has_block_checksums
    )
    header: bytes = compressor.begin()
    return header


def _unlz4_frame(view: memoryview) -> Generator[bytes, None, memoryview]:
    """Inflate the frame at the start; return the bytes after it.

    As in Java, a checksum of the content is not verified: the batch's CRC covers the frame, and the
    checksum takes several times as long as inflating. The library verifies it if a flag in the
    header is set, so it gets a header without the flag.
    """
    from lz4 import frame  # noqa: PLC0415 - on first use, see above.

    if len(view) < _LZ4_START.size:
        raise _cut_short(CompressionType.LZ4)
    context = frame.create_decompression_context()
    size_bytes = stated_bytes = checksum_bytes = 0
    magic, flags, block_size = _LZ4_START.unpack_from(view)
    # With less space for its output, the library inflates a block into a buffer of its own first.
    piece_bytes = max(PIECE_BYTES, 1 << 8 + 2 * (block_size >> 4 & 7))
    try:
        if magic == _LZ4_MAGIC and flags & _LZ4_CHECKSUM_BIT:
            info = frame.get_frame_info(view)  # This verifies the header.
            stated_bytes = info["content_size"]
            checksum_bytes = _UINT32_LE.size
            header = _lz4_header(
                info["block_size_id"],
                is_linked=info["block_linked"],
                has_block_checksums=info["block_checksum"],
            )
            frame.decompress_chunk(context, header)
            view = view[_lz4_header_bytes(flags) :]
        is_whole = False
        while not is_whole:
            piece, read_bytes, is_whole = frame.decompress_chunk(context, view, piece_bytes)
            if not (piece or read_bytes or is_whole):
                raise _cut_short(CompressionType.LZ4)
            view = view[read_bytes:]
            size_bytes += len(piece)
            yield piece
    except RuntimeError as error:
        raise DecodeError(f"lz4 block: {error}") from None
    if len(view) < checksum_bytes:
        raise _cut_short(CompressionType.LZ4)
    if stated_bytes not in {0, size_bytes}:
        raise DecodeError(f"lz4 block of {size_bytes} bytes claims to hold {stated_bytes}")
    return view[checksum_bytes:]


def _lz4_header_bytes(flags: int) -> int:
    size_bytes = 8 if flags & _LZ4_SIZE_BIT else 0
    dictionary_bytes = 4 if flags & _LZ4_DICTIONARY_BIT else 0
    return _LZ4_HEADER_BYTES_MIN + size_bytes + dictionary_bytes


def _unlz4(data: Buffer, _limit_bytes: int) -> _Inflating:
    """Inflate consecutive frames of any kind as one stream, and ignore other bytes after them."""
    rest = yield from _unlz4_frame(memoryview(data))
    is_one_stream = not rest
    while len(rest) >= _UINT32_LE.size:
        (magic,) = _UINT32_LE.unpack_from(rest)
        if magic != _LZ4_MAGIC and magic & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
            break
        rest = yield from _unlz4_frame(rest)
    return is_one_stream


def _unlz4_of_java(data: Buffer, _limit_bytes: int) -> _Inflating:
    """Inflate one frame of independent blocks without a dictionary, the only kind that Java reads,
    and ignore the bytes after it.
    """
    if len(data) < _LZ4_START.size:
        raise _cut_short(CompressionType.LZ4)
    magic, flags, _ = _LZ4_START.unpack_from(data)
    if magic != _LZ4_MAGIC:
        raise DecodeError(f"lz4 block with a frame of magic {magic:#x}")
    if not flags & _LZ4_INDEPENDENT_BIT:
        raise DecodeError("lz4 block with linked blocks, which Java's clients cannot read")
    if flags & _LZ4_DICTIONARY_BIT:
        raise DecodeError("lz4 block with a dictionary, which Kafka clients do not have")
    rest = yield from _unlz4_frame(memoryview(data))
    return not rest


_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 << 10
"""Maximum inflated size of a block; a block of 4 bytes can inflate to as much."""
_ZSTD_RLE_BLOCK = 1


def _zstd(slices: Iterable[Buffer], size_bytes: int, level: int | None) -> Iterator[bytes]:
    import zstandard  # noqa: PLC0415 - on first use, see above.

    compressor = zstandard.ZstdCompressor(level=3 if level is None else level)
    stream = compressor.compressobj(size=size_bytes)
    for data in slices:
        yield stream.compress(data)
    yield stream.flush()


def _unzstd(data: Buffer, _limit_bytes: int) -> _Inflating:
    """Inflate consecutive frames, as all clients do. The library's streams take no output limit, so
    they are fed a few blocks at a time.
    """
    import zstandard  # noqa: PLC0415 - on first use, see above.

    view = memoryview(data)
    decompressor = zstandard.ZstdDecompressor()
    position, whole = 0, False
    try:
        while position < len(view):
            skipped = _skippable_bytes(view, position)
            if skipped:
                position += skipped
                whole = position <= len(view)
                yield b""
                continue
            stream = decompressor.decompressobj()
            for stop in _zstd_stops(view, position):
                yield stream.decompress(view[position:stop])
                position = stop
            whole = stream.eof
    except zstandard.ZstdError as error:
        raise DecodeError(f"zstd block: {error}") from None
    if not whole:
        raise _cut_short(CompressionType.ZSTD)
    return True


def _skippable_bytes(view: memoryview, position: int) -> int:
    """Return the size of the skippable frame at `position`, 0 if there is none."""
    if len(view) - position < _SKIPPABLE_START.size:
        return 0
    magic, size = _SKIPPABLE_START.unpack_from(view, position)
    return _SKIPPABLE_START.size + size if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC else 0


def _zstd_stops(view: memoryview, position: int) -> Iterator[int]:
    """Yield positions that divide a frame (RFC 8878); each part inflates to at most PIECE_BYTES.

    Only sizes are read. A malformed frame ends the iteration: the library reports its errors.
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


_COMPRESSORS: dict[CompressionType, Compressor] = {
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}

_DECOMPRESSORS: dict[CompressionType, Decompressor] = {
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}

_JAVA_DECOMPRESSORS = _DECOMPRESSORS | {CompressionType.LZ4: _unlz4_of_java}
