"""segments.crc: checksums of the files that determine, with a log's batches, what clients read.

A wrong offset index only makes a read slow, because each of its entries is compared with a batch. A
wrong transaction index shows aborted records, and a wrong producer snapshot loses open transactions
and sequences; a missing index looks like a segment without aborted transactions. Kafka's formats do
not show whether a file is complete, or to which segment it belongs. This file does: for every
sealed segment it lists the CRC-32C of the transaction index, or that there is none, and the CRC of
the first batch in the .log; and it lists the checksums of the snapshots. A clean stop also lists
the active segment. After a kill that entry is missing, so another segment's .log in place of the
active one is not detected if its offsets fit.

A file that is not listed, or differs, is rebuilt from the batches. So a crash between two writes
only costs time, provided that no line outlives the content that it describes. Therefore a segment's
line is removed before compaction replaces the segment, and a new line is on disk before the
recovery point passes its segment.

Text: version 0, the name of the partition's directory, one line `<file name> <checksum>` for each
file, "-" instead of the checksum if there must be no such file, and the CRC-32C of all of that.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from kohort.broker.storage.checked_file import CHECKSUM_SUFFIX, replace_file
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem, read_file
from kohort.broker.storage.layout import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from kohort.protocol.records.crc import crc32c

FILE_NAME: Final = f"segments{CHECKSUM_SUFFIX}"
_VERSION: Final = "0"
_NO_FILE: Final = "-"

logger = logging.getLogger(__name__)

Sums = dict[str, int | None]
"""CRC-32C by file name; None if there must be no such file."""


class SegmentChecksums:
    __slots__ = ("_content", "_directory", "_files", "is_replaced", "sums")

    def __init__(self, files: FileSystem, directory: str, *, exists: bool = False) -> None:
        """Read the file if it `exists`; a damaged one is ignored. Raises OSError."""
        self._files = files
        self._directory = directory
        self._content = b""
        self.is_replaced = False
        """Whether the file was replaced or removed since the log was opened."""
        self.sums: Sums = {}
        """The content of the file when the log was opened."""
        if not exists:
            return
        content = read_file(files, self._path)
        try:
            self.sums = parse_sums(content, directory)
        except CorruptFileError as error:
            logger.warning("%s; transaction indexes are compared with the batches", error)
        else:
            self._content = content

    @property
    def _path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    def drop_segments(self, base_offsets: Iterable[int]) -> None:
        """Drop the checksums of segments that are to be replaced or were replaced."""
        for base_offset in base_offsets:
            for suffix in (LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                self.sums.pop(file_name(base_offset, suffix), None)

    def replace(self, sums: Mapping[str, int | None]) -> bool:
        """Write the file, without a sync, if the content differs; True if so. Raises OSError."""
        content = encode_sums(sums, self._directory)
        if content == self._content or not (sums or self._content):
            return False
        self._content = b""
        self.is_replaced = True
        try:
            replace_file(self._files, self._path, content, sync=False)
        except OSError:
            with suppress(OSError):
                self._files.remove(self._path)
            raise
        self._content = content
        return True


def encode_sums(sums: Mapping[str, int | None], directory: str) -> bytes:
    lines = [_VERSION, directory.rpartition("/")[2]]
    lines += [
        f"{name} {_NO_FILE if value is None else f'{value:08x}'}" for name, value in sums.items()
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"{crc32c(text):08x}\n".encode()


def parse_sums(content: bytes, directory: str) -> Sums:
    """Parse the content of a file. Raises CorruptFileError if it is damaged or belongs to another
    log.
    """
    path = f"{directory}/{FILE_NAME}"
    text, last = content[:-9], content[-9:]
    if last != f"{crc32c(text):08x}\n".encode():
        raise CorruptFileError(f"{path} is damaged")
    version, name, *lines = text.decode().splitlines()
    if version != _VERSION or name != directory.rpartition("/")[2]:
        raise CorruptFileError(f"{path} of version {version} belongs to {name}")
    pairs = (line.split(" ") for line in lines)
    return {file: None if value == _NO_FILE else int(value, 16) for file, value in pairs}
