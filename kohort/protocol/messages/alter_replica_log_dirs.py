"""AlterReplicaLogDirs (key 34): move replicas between the data directories of one broker.

v1 answers before throttling; v2 flexible. Version 0 ended with Kafka 4.0. Defined by KIP-113.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Int16, Int32, String


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
    - INVALID_TOPIC_EXCEPTION: an illegal topic name.
    - KAFKA_STORAGE_ERROR: a directory is offline.
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster.
    """

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirTopicResult]
