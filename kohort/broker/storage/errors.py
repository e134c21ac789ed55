"""The exceptions that storage raises.

Exception
  KafkaError                 (protocol.errors) an answer to the peer
    StorageError             KAFKA_STORAGE_ERROR: the disk or the file system failed
    CorruptBatchError        CORRUPT_MESSAGE: stored bytes are not what was written
    OffsetOutOfRangeError    OFFSET_OUT_OF_RANGE: the offset is below the start or beyond the end
  DataDirectoryLockedError   another process uses the data directory: the operator's mistake
  CorruptFileError           a file beside the log (index, snapshot, checkpoint) is damaged; it
                             never reaches a client, because the file can be rebuilt
"""

from kohort.protocol.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """The disk or the file system failed. ``log.failed`` says whether the log is still usable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class CorruptBatchError(KafkaError):
    """The requested batch is damaged on disk; other offsets of the partition stay readable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class OffsetOutOfRangeError(KafkaError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class DataDirectoryLockedError(Exception):
    """Another process holds the data directory."""


class CorruptFileError(Exception):
    """A file beside the log is damaged: an index, a snapshot, a checkpoint."""
