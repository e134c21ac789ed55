"""Small files of the jobs' own, on whatever file system the session knows."""

from typing import Any

from pyspark.sql import SparkSession

from kohort.pipeline import jvm
from kohort.pipeline.faults import explained


class Files:
    """Reads, lists and creates files by path or URL. Raises ReportedError."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = jvm.of(spark)

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        with explained(path):
            files, place = self._at(path)
            return bool(files.exists(place))

    def names(self, directory: str) -> list[str]:
        """What is in a directory, sorted; nothing if it is not there."""
        with explained(directory):
            files, place = self._at(directory)
            if not files.exists(place):
                return []
            return sorted(str(entry.getPath().getName()) for entry in files.listStatus(place))

    def read(self, path: str) -> str:
        """The text of a small file."""
        with explained(path):
            files, place = self._at(path)
            stream = files.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        """Makes or replaces a small file: with all of the text, or not at all."""
        with explained(path):
            files, place = self._at(path)
            aside = self._jvm.org.apache.hadoop.fs.Path(f"{path}.part")
            stream = files.create(aside, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            files.delete(place, False)
            files.rename(aside, place)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(jvm.hadoop_configuration(self._spark)), place
