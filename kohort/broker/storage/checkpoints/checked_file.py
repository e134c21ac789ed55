"""Small files that are replaced as a whole, and text files with a checksum beside them.

Kafka's checkpoint files are plain text without a checksum: one flipped bit in a digit is a
different, valid number. So that such a file is not believed, `<name>.crc` beside it lists the
CRC-32C of the content before and after the last change. It is replaced first: whatever a crash
leaves, the content has one of the two sums, and Kafka, which ignores the file, can still read the
checkpoint. Without the sums, or with damaged ones, the content is taken as it is.
"""

from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem, read_file, write_fully
from kohort.broker.storage.layout import TEMPORARY_SUFFIX
from kohort.protocol.records.crc import crc32c

CHECKSUM_SUFFIX = ".crc"
CONTENT_BYTES_MAX = 64 * 1024 * 1024
"""What we are willing to read into memory for a checkpoint."""


def replace_file(files: FileSystem, path: str, content: bytes, *, sync: bool = True) -> None:
    """Put a file of this content in the place of `path`; after a crash it is the old or the new.

    The directory is not synced: until that happens a power loss may bring the old one back. Without
    `sync` a power loss may also leave the file empty or in parts, for what can be rebuilt.
    """
    file = files.create(path + TEMPORARY_SUFFIX)
    try:
        write_fully(file, [content], 0)
        if sync:
            file.sync()
    finally:
        file.close()
    files.rename(path + TEMPORARY_SUFFIX, path)


def replace_checked(
    files: FileSystem, path: str, content: bytes, *, sync: bool = True, sync_sums: bool = True
) -> None:
    """`replace_file` with the checksums beside it.

    Without `sync_sums` a power loss may leave none, which is well as long as there is no content
    that the old ones could refuse.
    """
    sums = [crc32c(content)]
    if files.exists(path):
        sums.append(crc32c(read_file(files, path)))
    replace_file(files, path + CHECKSUM_SUFFIX, _encode_sums(sums), sync=sync and sync_sums)
    replace_file(files, path, content, sync=sync)


def read_checked(files: FileSystem, path: str) -> bytes | None:
    """The content; None if there is no such file; CorruptFileError if it is damaged."""
    if not files.exists(path):
        return None
    file = files.file(path)
    try:
        size_bytes = file.size()
        if size_bytes > CONTENT_BYTES_MAX:
            raise CorruptFileError(f"{path} is larger than a checkpoint can be")
        content = file.pread(size_bytes, 0)
    finally:
        file.close()
    sums = _read_sums(files, path + CHECKSUM_SUFFIX)
    if sums and crc32c(content) not in sums:
        raise CorruptFileError(f"{path} does not have the checksum noted beside it")
    return content


def _encode_sums(sums: list[int]) -> bytes:
    line = " ".join(f"{value:08x}" for value in sums)
    return f"{line}\n{crc32c(line.encode()):08x}\n".encode()


def _read_sums(files: FileSystem, path: str) -> list[int]:
    """The sums that may be; [] if there are none to be had."""
    if not files.exists(path):
        return []
    line, _, rest = read_file(files, path).partition(b"\n")
    if rest != f"{crc32c(line):08x}\n".encode():
        return []
    return [int(value, 16) for value in line.split()]
