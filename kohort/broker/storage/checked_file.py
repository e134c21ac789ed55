"""Small files that are replaced as a whole, and text files with separate checksums.

Kafka's checkpoint files are plain text without a checksum: one flipped bit in a digit gives a
different, valid number. To detect that, `<name>.crc` beside a checkpoint lists the CRC-32C of its
content before and after the last change. The checksum file is replaced first, so after a crash the
content matches one of the two. Kafka ignores that file, and can still read the checkpoint. If the
checksums are missing or damaged, the content is accepted as it is.
"""

from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem, read_file, write_fully
from kohort.broker.storage.layout import TEMPORARY_SUFFIX
from kohort.protocol.records.crc import crc32c

CHECKSUM_SUFFIX = ".crc"
CONTENT_BYTES_MAX = 64 * 1024 * 1024
"""Upper bound for the size of a checkpoint that is read into memory."""


def replace_file(files: FileSystem, path: str, content: bytes, *, sync: bool = True) -> None:
    """Replace a file atomically: after a crash it has either the old or the new content.

    Until the caller syncs the directory, a power failure may restore the old file. Without `sync`,
    meant for files that can be rebuilt, it may also leave the file empty or partly written.
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
    """Replace a file and its checksum file, each as `replace_file` does.

    Without `sync_sums` the checksum file is not flushed: a power failure may lose it, and the
    content is then accepted unchecked. Only for new files, which have no old content to protect.
    """
    sums = f"{crc32c(content):08x}"
    if files.exists(path):
        sums += f" {crc32c(read_file(files, path)):08x}"
    line = f"{sums}\n{crc32c(sums.encode()):08x}\n".encode()
    replace_file(files, path + CHECKSUM_SUFFIX, line, sync=sync and sync_sums)
    replace_file(files, path, content, sync=sync)


def read_checked(files: FileSystem, path: str) -> bytes | None:
    """Return the content; None if there is no file. Raises CorruptFileError if it is damaged."""
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
        raise CorruptFileError(f"{path} does not match its checksum file")
    return content


def _read_sums(files: FileSystem, path: str) -> list[int]:
    """Return a checksum file's checksums; [] if the file is missing or damaged."""
    if not files.exists(path):
        return []
    line, _, rest = read_file(files, path).partition(b"\n")
    if rest != f"{crc32c(line):08x}\n".encode():
        return []
    return [int(value, 16) for value in line.split()]
