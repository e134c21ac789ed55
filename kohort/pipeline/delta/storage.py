"""Reads and writes files on local disks or any file system that Hadoop supports."""

import io
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from kohort.pipeline import jvm

AT_ONCE: Final = 1 << 20
"""Minimum number of bytes read from a remote file at once, because each read is a round trip."""


class Storage:
    """Opens and writes files by path or URL. Raises OSError, or py4j's errors."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm.packages(spark)
        self._configuration = jvm.hadoop_configuration(spark)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; the caller closes it."""
        local = _local(path)
        if local is not None:
            return local.open("rb")
        files, place = self._at(path)
        size = int(files.getFileStatus(place).getLen())
        return io.BufferedReader(_Remote(self._jvm, files.open(place), size), AT_ONCE)

    def read(self, path: str) -> bytes:
        with closing(self.open(path)) as file:
            return file.read()

    def write(self, path: str, content: bytes) -> None:
        """Create a file, which must not exist."""
        local = _local(path)
        if local is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("xb") as file:
                file.write(content)
            return
        files, place = self._at(path)
        with closing(files.create(place, False)) as stream:
            stream.write(bytearray(content))

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._configuration), place


class _Remote(io.RawIOBase):
    """A Hadoop input stream."""

    def __init__(self, java: Any, stream: Any, size: int) -> None:  # noqa: ANN401 - Java objects.
        self._utilities = java.org.apache.commons.io.IOUtils
        self._stream = stream
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer.
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        self._stream.seek(self._position)
        buffer[:count] = self._utilities.toByteArray(self._stream, count)
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _local(path: str) -> Path | None:
    """Return the path of a local file; None for a remote one."""
    if path.startswith("/"):
        return Path(path)
    parts = urlsplit(path)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
