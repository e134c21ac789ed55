"""What metadata say of a cluster, as a test has it, to the fetch side's rules."""

from collections.abc import Mapping
from typing import Final

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader, TopicInfo
from kohort.protocol.errors import ErrorCode

TOPIC_ID: Final = b"i" * 16
EPOCH: Final = 5


class OneTopic:
    """A cluster with the topic "t", whose leaders a test names."""

    def __init__(self, *leaders: int) -> None:
        self.nodes = set(leaders)
        """The brokers that can be reached."""
        self.topics: Mapping[str, TopicInfo] = {}
        self.lead(*leaders)

    def lead(self, *leaders: int, topic_id: bytes = TOPIC_ID) -> None:
        """By partition, -1 for none."""
        known = {index: Leader(node, EPOCH) for index, node in enumerate(leaders) if node >= 0}
        self.nodes |= {leader.node_id for leader in known.values()}
        self.topics = {
            "t": TopicInfo(
                name="t",
                topic_id=topic_id,
                is_internal=False,
                error=ErrorCode.NONE,
                leaders=known,
                partition_count=len(leaders),
                replicas={},
                epochs={},
            )
        }

    def leader(self, partition: TopicPartition) -> Leader | None:
        return self.topics["t"].leaders.get(partition.partition)

    def is_online(self, partition: TopicPartition, node_id: int) -> bool:
        return node_id in self.nodes

    def broker(self, node_id: int) -> object | None:
        return node_id if node_id in self.nodes else None
