"""Data directories of brokers (KIP-113), and the space on their volumes (KIP-827)."""

from typing import NamedTuple

from kohort.admin.cluster import Cluster, check
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class Directory(NamedTuple):
    path: str
    error: int
    """An ErrorCode: KAFKA_STORAGE_ERROR if the directory is offline."""
    data_bytes: int
    """Size of all logs in it."""
    volume_bytes: int | None
    """Size of its volume; None if unknown, as before Kafka 3.3."""
    free_bytes: int | None


def directories(cluster: Cluster, broker: BlockingConnection) -> list[Directory]:
    answer: DescribeLogDirsResponse = cluster.ask(broker, DescribeLogDirsRequest(topics=None))
    check(answer.error_code, f"{broker.address} does not list its directories")
    return [
        Directory(
            directory.log_dir,
            directory.error_code,
            sum(log.partition_size for topic in directory.topics for log in topic.partitions),
            directory.total_bytes if directory.total_bytes >= 0 else None,
            directory.usable_bytes if directory.usable_bytes >= 0 else None,
        )
        for directory in answer.results
    ]
