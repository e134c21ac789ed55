"""The checkpoint of a streaming query, and the job that owns it.

Spark stores the offsets of each batch in the checkpoint before the batch, and its completion after
the batch, but not the name of the query. With another query's checkpoint, a query would continue
from that query's offsets. So Kohort's own file `job.json` is stored beside Spark's files, and is
checked first.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from kohort.insight.errors import ReportedError
from kohort.pipeline import jvm
from kohort.pipeline.faults import explained
from kohort.pipeline.kafka import Offsets

_OWNER_FILE: Final = "job.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """The owner of a checkpoint. All fields must be the same in later runs."""

    job: str
    cluster_id: str
    topic: str
    topic_id: str
    table_id: str
    """The table that receives the rows; only this checkpoint writes to it."""


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    claim: Claim
    app_id: str
    """Application id under which the table stores this checkpoint's batch numbers."""
    begin: Offsets
    """Offsets of the first batch; partitions added later begin at 0."""


class Checkpoint:
    def __init__(self, files: "Files", path: str) -> None:
        self._files = files
        self.path = path

    def owner(self, claim: Claim) -> CheckpointOwner | None:
        """Return the owner of the checkpoint; None if the checkpoint is new.

        Raises:
            ReportedError: another query owns the checkpoint; the message names the difference.
        """
        path = f"{self.path}/{_OWNER_FILE}"
        if not self._files.exists(path):
            # Ignore .part files, which a job leaves behind if it is killed during a write.
            if any(not name.endswith(".part") for name in self._files.names(self.path)):
                raise ReportedError(
                    f"{self.path} is the checkpoint of another query: it has no {_OWNER_FILE}. "
                    "Name another directory with --checkpoints."
                )
            return None
        try:
            content = json.loads(self._files.read(path))
            claimed = Claim(**content["claim"])
            owner = CheckpointOwner(claimed, content["app_id"], _offsets(content["begin"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReportedError(f"{path} is invalid: {error}") from error
        self._compare(owner.claim, claim)
        return owner

    def stored_begin(self) -> Offsets:
        """Return the stored offsets of the first batch, whichever job owns the checkpoint; empty if
        unknown.
        """
        try:
            content = json.loads(self._files.read(f"{self.path}/{_OWNER_FILE}"))
            return _offsets(content["begin"])
        except (ReportedError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def begin(self, claim: Claim, begin: Mapping[int, int]) -> CheckpointOwner:
        """Create the checkpoint for this claim, with `begin` as the offsets of the first batch."""
        owner = CheckpointOwner(claim, f"{claim.job}-{uuid.uuid4()}", dict(begin))
        self._files.write(f"{self.path}/{_OWNER_FILE}", json.dumps(asdict(owner), indent=2))
        return owner

    def ends(self, batch_id: int) -> Offsets | None:
        """Return the end offsets that Spark stored before the batch; None if it never began.

        Raises:
            ReportedError: Spark's file has an unexpected format.
        """
        path = f"{self.path}/offsets/{batch_id}"
        if batch_id < 0 or not self._files.exists(path):
            return None
        try:
            # The lines are "v1", the batch's settings, and the offsets of the only source.
            version, _, source = self._files.read(path).splitlines()[:3]
            topics = json.loads(source)
            ((_, offsets),) = topics.items()
            if version != "v1":
                raise ValueError(f"version {version!r}")
            return _offsets(offsets)
        except (ValueError, AttributeError) as error:
            raise ReportedError(f"{path} does not have Spark 4.2's format: {error}") from error

    def last_done(self) -> int:
        done = [name for name in self._files.names(f"{self.path}/commits") if name.isdigit()]
        return max(map(int, done), default=-1)

    def _compare(self, stored: Claim, wanted: Claim) -> None:
        if stored.job != wanted.job:
            reason = f"of the job {stored.job!r}, not {wanted.job!r}"
        elif stored.cluster_id != wanted.cluster_id:
            reason = f"for the cluster {stored.cluster_id}, not {wanted.cluster_id}"
        elif (stored.topic, stored.topic_id) != (wanted.topic, wanted.topic_id):
            reason = (
                f"for the topic {stored.topic} with id {stored.topic_id}, "
                f"not {wanted.topic} with id {wanted.topic_id}"
            )
        elif stored.table_id != wanted.table_id:
            reason = (
                f"for the table with id {stored.table_id}, but this lake's table has the id "
                f"{wanted.table_id}: the table was removed, or it is another lake"
            )
        else:
            return
        raise ReportedError(
            f"{self.path} is a checkpoint {reason}. Name another directory with --checkpoints."
        )


def _offsets(content: Mapping[Any, Any]) -> Offsets:
    return {int(index): int(offset) for index, offset in content.items()}


class Files:
    """Small files on any file system that the Spark session supports, by path or URL.

    All methods raise ReportedError.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = jvm.packages(spark)

    def exists(self, path: str) -> bool:
        with explained(path):
            files, place = self._at(path)
            return bool(files.exists(place))

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; empty if it does not exist."""
        with explained(directory):
            files, place = self._at(directory)
            if not files.exists(place):
                return []
            return sorted(str(entry.getPath().getName()) for entry in files.listStatus(place))

    def read(self, path: str) -> str:
        with explained(path):
            files, place = self._at(path)
            stream = files.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, path: str, text: str) -> None:
        """Create or replace a file, completely or not at all."""
        with explained(path):
            files, place = self._at(path)
            part = self._jvm.org.apache.hadoop.fs.Path(f"{path}.part")
            stream = files.create(part, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            files.delete(place, False)
            files.rename(part, place)

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(jvm.hadoop_configuration(self._spark)), place
