import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Generator
from typing import TypeVar

import lz4.block
import lz4.frame
import pytest
import zstandard
from cramjam import snappy

from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.compression import (
    PIECE_BYTES,
    compress,
    compress_steps,
    decompress,
    open_steps,
)
from kohort.protocol.records.varint import encode_uvarint
from tests.support.records.compressed_forms import FORMS, Form, Readers, xxh32

MB = 1 << 20
COMPRESSED = [codec for codec in CompressionType if codec is not CompressionType.NONE]
SAMPLE = b"".join(f"record {n * n % 977} of many; ".encode() for n in range(4_000))


T = TypeVar("T")


def finish(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What the steps return, and how often they paused before."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def test_without_a_codec_nothing_is_copied() -> None:
    source = bytearray(b"payload")
    block = decompress(CompressionType.NONE, source)
    source[0] = 0
    assert block[0] == 0
    assert decompress(CompressionType.NONE, SAMPLE) is SAMPLE


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_higher_level_compresses_harder(codec: CompressionType) -> None:
    data = SAMPLE * 8
    assert len(compress(codec, data, 9)) < len(compress(codec, data, 1))
    assert decompress(codec, compress(codec, data, 9)) == data


def test_snappy_is_written_in_the_framing_that_java_reads_and_writes() -> None:
    framed = compress(CompressionType.SNAPPY, SAMPLE)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", framed, 16)
    assert bytes(snappy.decompress_raw(framed[20 : 20 + length])) == SAMPLE[: 32 << 10]


def test_snappy_is_also_read_as_one_raw_block() -> None:
    assert decompress(CompressionType.SNAPPY, bytes(snappy.compress_raw(SAMPLE))) == SAMPLE


def test_lz4_is_written_in_blocks_that_do_not_depend_on_each_other() -> None:
    info = lz4.frame.get_frame_info(compress(CompressionType.LZ4, SAMPLE))
    assert not info["block_linked"]
    assert info["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB


@pytest.mark.parametrize(
    "compressor",
    [
        zstandard.ZstdCompressor(),
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False),
        zstandard.ZstdCompressor(level=19, threads=2),
    ],
)
def test_zstd_frames_of_every_shape_are_read(compressor: zstandard.ZstdCompressor) -> None:
    for data in (b"", b"x" * 300, SAMPLE, SAMPLE * 40):
        assert decompress(CompressionType.ZSTD, compressor.compress(data)) == data
        stream = compressor.compressobj()
        assert decompress(CompressionType.ZSTD, stream.compress(data) + stream.flush()) == data


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_streams_that_follow_each_other_are_joined(codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two")) == b"one two"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_block_cut_short_anywhere_is_refused(codec: CompressionType) -> None:
    whole = compress(codec, SAMPLE[:20_000])
    # Framed snappy has no end mark: cut behind its header, or in the first length, it is empty.
    empty = range(16, 20) if codec is CompressionType.SNAPPY else ()
    for size in range(len(whole)):
        if size in empty:
            assert decompress(codec, whole[:size]) == b""
            continue
        with pytest.raises(DecodeError):
            decompress(codec, whole[:size])


@pytest.mark.parametrize("codec", [CompressionType.SNAPPY, CompressionType.ZSTD])
@pytest.mark.parametrize("excess", [b"garbage", b"\xff" * 40])
def test_garbage_after_a_block_is_refused_if_java_refuses_it(
    codec: CompressionType, excess: bytes
) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, SAMPLE) + excess)


@pytest.mark.parametrize("data", [SAMPLE[:300], SAMPLE * 3], ids=len)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_blocks_that_java_reads_are_opened_and_marked_if_others_cannot_read_them(
    form: Form, data: bytes
) -> None:
    steps = open_steps(form.codec, form.compress(data))
    if form.readers is Readers.NOT_JAVA and form.name != "lz4, two frames":
        with pytest.raises(DecodeError):
            finish(steps)
        return
    opened, _ = finish(steps)
    if form.name == "lz4, two frames":
        # Java ignores the second, so records are missing.
        assert opened.block == data[: len(data) // 2]
        return
    assert opened.block == data
    assert opened.is_one_stream is (form.readers is Readers.ALL)
    assert decompress(form.codec, form.compress(data)) == data


@pytest.mark.parametrize(
    "name", ["lz4 of linked blocks", "lz4 behind a skippable frame", "lz4, two frames"]
)
def test_lz4_that_java_cannot_read_is_still_decompressed(name: str) -> None:
    """Brokers before this one's checks may have stored it."""
    (form,) = [form for form in FORMS if form.name == name]
    assert decompress(form.codec, form.compress(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("has_size", [False, True])
@pytest.mark.parametrize("has_block_checksums", [False, True])
def test_a_checksum_of_an_lz4_frame_is_skipped_without_harm_to_the_rest(
    block_size: int, is_linked: bool, has_size: bool, has_block_checksums: bool
) -> None:
    data = SAMPLE * 40 + random.Random(1).randbytes(300_000)
    compressed: bytes = lz4.frame.compress(
        data,
        block_size=block_size,
        block_linked=is_linked,
        store_size=has_size,
        block_checksum=has_block_checksums,
        content_checksum=True,
    )
    assert decompress(CompressionType.LZ4, compressed) == data
    assert decompress(CompressionType.LZ4, compressed * 2) == data * 2
    wrong_checksum = compressed[:-1] + bytes([compressed[-1] ^ 1])
    assert decompress(CompressionType.LZ4, wrong_checksum) == data
    for stop in (1, 5, 6, 7, 14, len(compressed) // 2, len(compressed) - 4, len(compressed) - 1):
        with pytest.raises(DecodeError):
            decompress(CompressionType.LZ4, compressed[:stop])


def test_an_lz4_frame_with_a_wrong_checksum_is_opened_as_in_kafka() -> None:
    compressed = lz4.frame.compress(SAMPLE, block_linked=False, content_checksum=True)
    opened, _ = finish(open_steps(CompressionType.LZ4, compressed[:-4] + b"else"))
    assert opened.block == SAMPLE
    assert opened.is_one_stream
    opened, _ = finish(open_steps(CompressionType.LZ4, compressed + b"\x00"))
    assert opened.block == SAMPLE
    assert not opened.is_one_stream


@pytest.mark.parametrize("position", [4, 5, 6, 10, 14])
def test_an_lz4_frame_with_a_damaged_header_is_refused(position: int) -> None:
    compressed = bytearray(
        lz4.frame.compress(SAMPLE, block_linked=False, content_checksum=True, store_size=True)
    )
    compressed[position] ^= 0x40
    with pytest.raises(DecodeError):
        decompress(CompressionType.LZ4, compressed)


@pytest.mark.parametrize("checksum_flag", [0x00, 0x04])
def test_an_lz4_frame_that_states_a_wrong_size_is_refused(checksum_flag: int) -> None:
    descriptor = bytes([0x68 | checksum_flag, 0x40]) + struct.pack("<Q", len(SAMPLE) + 1)
    block = lz4.block.compress(SAMPLE, store_size=False)
    frame = b"".join(
        (
            struct.pack("<I", 0x184D2204),
            descriptor,
            bytes([xxh32(descriptor) >> 8 & 0xFF]),
            struct.pack("<I", len(block)),
            block,
            bytes(4),
            bytes(checksum_flag),
        )
    )
    with pytest.raises(DecodeError):
        decompress(CompressionType.LZ4, frame)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"x", SAMPLE, SAMPLE * 30], ids=len)
def test_a_block_is_compressed_in_steps_as_one_stream(codec: CompressionType, data: bytes) -> None:
    compressed, pauses = finish(compress_steps(codec, memoryview(data)))
    assert pauses >= len(data) // (128 << 10)
    opened, _ = finish(open_steps(codec, compressed))
    assert opened.block == data
    assert opened.is_one_stream


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    "garbage", [b"\x00" * 20, b"\xff" * 20, b"garbage garbage", bytes(range(200))]
)
def test_garbage_is_refused(codec: CompressionType, garbage: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, garbage)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [1, 1_000, PIECE_BYTES, PIECE_BYTES + 1, 3 * MB])
def test_the_limit_is_the_last_size_that_is_accepted(codec: CompressionType, size: int) -> None:
    compressed = compress(codec, bytes(size))
    assert len(decompress(codec, compressed, size)) == size
    with pytest.raises(DecodeError, match="more than"):
        decompress(codec, compressed, size - 1)


def test_a_snappy_block_that_claims_more_than_its_bytes_can_stand_for_is_refused() -> None:
    claim = b"\xff\xff\xff\x0f" + b"\x00" * 100
    with pytest.raises(DecodeError, match="claims"):
        decompress(CompressionType.SNAPPY, claim)


@pytest.mark.parametrize("length", [-1, 0, 6, 1 << 30])
def test_a_framed_snappy_block_of_impossible_length_is_refused(length: int) -> None:
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"\x00" * 5
    with pytest.raises(DecodeError, match="snappy block of"):
        decompress(CompressionType.SNAPPY, framed)


def gzip_bomb() -> bytes:
    """A MiB of zeroes in a form that can follow itself, a thousand times."""
    stream = zlib.compressobj(9, wbits=31)
    start = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(MB)) + stream.flush(zlib.Z_FULL_FLUSH)
    return start + again * 1_024


def snappy_bomb() -> bytes:
    block = bytes(snappy.compress_raw(bytes(2 * MB)))
    return (
        b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 99
    )


def raw_snappy_bomb() -> bytes:
    """A zero and four million times "the 64 bytes before, again": 256 MiB in one block."""
    return encode_uvarint(256 * MB + 1) + b"\x00\x00" + b"\xfe\x01\x00" * (4 * MB)


def lz4_bomb() -> bytes:
    stream = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    start = stream.begin()
    again: bytes = stream.compress(bytes(4 * MB)) + stream.flush()[:-4]
    return bytes(start + again * 256)


def zstd_bomb() -> bytes:
    """Blocks of one byte that is to be repeated: 4 bytes for 128 KiB each."""
    frame_header = bytes.fromhex("28b52ffd0038")
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    return frame_header + block * 8_192


BOMBS: list[tuple[CompressionType, Callable[[], bytes]]] = [
    (CompressionType.GZIP, gzip_bomb),
    (CompressionType.SNAPPY, snappy_bomb),
    (CompressionType.SNAPPY, raw_snappy_bomb),
    (CompressionType.LZ4, lz4_bomb),
    (CompressionType.ZSTD, zstd_bomb),
]

MEASURE = """
import sys
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.compression import compress, decompress

def peak() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

codec, limit = CompressionType(int(sys.argv[1])), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, b"loads the library"))
before = peak()
try:
    decompress(codec, bomb, limit)
except DecodeError as error:
    print(peak() - before, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_bomb_stops_at_the_limit_and_takes_no_more_memory_than_that(
    codec: CompressionType, bomb: Callable[[], bytes]
) -> None:
    """In a process of its own, and by what the system says: libraries allocate behind Python."""
    limit_bytes = 32 * MB
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec)), str(limit_bytes)],
        input=bomb(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    peak_kib, message = measured.split(maxsplit=1)
    assert f"more than {limit_bytes} bytes" in message
    assert int(peak_kib) * 1024 < 2 * limit_bytes


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_large_block_inflates_in_steps(codec: CompressionType) -> None:
    compressed = compress(codec, bytes(10 * MB))
    opened, pauses = finish(open_steps(codec, compressed))
    assert opened.block == bytes(10 * MB)
    assert 5 <= pauses <= 11


@pytest.mark.parametrize("codec", CompressionType)
def test_an_ordinary_block_inflates_in_one_step(codec: CompressionType) -> None:
    assert finish(open_steps(codec, compress(codec, SAMPLE))) == ((SAMPLE, True), 0)


EMPTY_SNAPPY = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1) + struct.pack(">ib", 1, 0) * 1_000
SKIPPABLE = struct.pack("<II", 0x184D2A50, 0)


@pytest.mark.parametrize(
    ("codec", "block"),
    [
        (CompressionType.GZIP, zlib.compress(b"", wbits=31) * 3_000),
        (CompressionType.SNAPPY, EMPTY_SNAPPY * 3),
        (CompressionType.SNAPPY, EMPTY_SNAPPY[:16] * 3_000),
        (CompressionType.ZSTD, zstandard.ZstdCompressor().compress(b"") * 3_000),
        (CompressionType.ZSTD, SKIPPABLE * 3_000),
    ],
)
def test_a_block_of_many_empty_streams_inflates_in_steps(
    codec: CompressionType, block: bytes
) -> None:
    opened, pauses = finish(open_steps(codec, block))
    assert opened.block == b""
    assert pauses >= 10


def test_codec_libraries_are_not_loaded_before_they_are_needed() -> None:
    source = (
        "import sys, protocol.records.compression, protocol.records.builder\n"
        "print({'zstandard', 'lz4', 'lz4.frame', 'cramjam', 'construct'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)
    assert loaded.stdout.decode().strip() == "set()"
