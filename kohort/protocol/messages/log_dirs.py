"""DescribeLogDirs (key 35): data directories and the size of each partition in them;
AlterReplicaLogDirs (34): move replicas between the data directories of one broker (KIP-113).

Both: v1 answers before throttling; v2 flexible. DescribeLogDirs: v3 top-level error; v4 size of the
volume (KIP-827); v5 whether new partitions are kept away (KIP-1066). Version 0 ended with Kafka
4.0.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic:
    topic: String
    partitions: list[Int32]


@request(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None
    """The topics, None for everything."""


@struct
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    """How far the log is behind the high watermark, or a future log behind the current one."""
    is_future_key: Bool
    """Whether this copy is being built to replace the current log."""


@struct
class DescribeLogDirsTopic:
    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(default=-1, since=4, ignorable=True)
    """Size of the volume, -1 if unknown."""
    usable_bytes: Int64 = field(default=-1, since=4, ignorable=True)
    """Usable bytes of the volume, -1 if unknown."""
    is_cordoned: Bool = field(default=False, since=5, ignorable=True)
    """Whether the directory takes no new partitions."""


@response(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """One result per directory; an unauthorized principal gets none, and since v3 an error.

    Error codes, per directory:
    - KAFKA_STORAGE_ERROR: the directory is offline.
    - UNKNOWN_SERVER_ERROR: it could not be read.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=3, ignorable=True)
    results: list[DescribeLogDirsResult]


@struct
class AlterReplicaLogDirTopic:
    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    path: String
    topics: list[AlterReplicaLogDirTopic]


@request(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@response(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """One outcome per partition.

    Error codes, per partition:
    - LOG_DIR_NOT_FOUND: the broker has no such directory.
    - UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE: it has no such partition.
    - KAFKA_STORAGE_ERROR: a directory is offline.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirTopicResult]
