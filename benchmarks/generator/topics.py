"""Topics for a measurement: created, and waited for until every partition has a leader."""

import time
from collections.abc import Sequence
from typing import Final

from benchmarks.generator.frames import ask, connect
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.protocol.messages.topic_changes import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_CREATE, _DELETE, _LIST_OFFSETS, _METADATA = 5, 5, 6, 9
_TIMEOUT_S: Final = 120
_STARTING: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE}
"""What partitions answer that a Kafka which is up already has not taken up yet."""


def create_topics(port: int, names: Sequence[str], partitions: int = 1) -> None:
    """Raises RuntimeError if that is refused, or takes minutes."""
    with connect(port) as connection:
        connection.settimeout(_TIMEOUT_S)
        topics = [
            CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[],
                configs=[],
            )
            for name in names
        ]  # fmt: skip
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_S * 1_000)
        answer = ask(connection, request, CreateTopicsResponse, _CREATE)
        wrong = {ErrorCode(one.error_code) for one in answer.topics} - {ErrorCode.NONE}
        if wrong or len(answer.topics) != len(names):
            raise RuntimeError(f"topics could not be created: {wrong}")
        wanted = [MetadataRequestTopic(name=name) for name in names]
        late_s = time.monotonic() + _TIMEOUT_S
        while _led(ask(connection, MetadataRequest(topics=wanted), MetadataResponse, _METADATA)) < (
            partitions * len(names)
        ):
            if time.monotonic() > late_s:
                raise RuntimeError("partitions without a leader")
            time.sleep(0.02)


def _led(answer: MetadataResponse) -> int:
    return sum(
        not partition.error_code and partition.leader_id >= 0
        for topic in answer.topics
        for partition in topic.partitions
    )


def delete_topics(port: int, names: Sequence[str]) -> None:
    """Raises RuntimeError if that is refused."""
    with connect(port) as connection:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=_TIMEOUT_S * 1_000)
        answer = ask(connection, request, DeleteTopicsResponse, _DELETE)
        if any(one.error_code for one in answer.responses):
            raise RuntimeError(f"topics could not be deleted: {answer!r}")


def committed_end(port: int, name: str) -> int:
    """The sum of the last stable offsets of all partitions of one topic."""
    with connect(port) as connection:
        wanted = [MetadataRequestTopic(name=name)]
        told = ask(connection, MetadataRequest(topics=wanted), MetadataResponse, _METADATA)
        partitions = [
            ListOffsetsPartition(partition_index=partition.partition_index, timestamp=-1)
            for partition in told.topics[0].partitions
        ]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1,
            topics=[ListOffsetsTopic(name=name, partitions=partitions)],
        )
        answer = ask(connection, request, ListOffsetsResponse, _LIST_OFFSETS)
        return sum(one.offset for one in answer.topics[0].partitions)


def count_records(port: int, names: Sequence[str], partitions: int) -> int:
    """The sum of the end offsets of all partitions, when all of them have a leader.

    Raises RuntimeError if one cannot be asked, or has none for minutes.
    """
    late_s = time.monotonic() + _TIMEOUT_S
    with connect(port) as connection:
        connection.settimeout(_TIMEOUT_S)
        wanted = [
            ListOffsetsPartition(partition_index=number, timestamp=-1)
            for number in range(partitions)
        ]
        topics = [ListOffsetsTopic(name=name, partitions=wanted) for name in names]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        while True:
            answer = ask(connection, request, ListOffsetsResponse, _LIST_OFFSETS)
            found = [partition for topic in answer.topics for partition in topic.partitions]
            wrong = {ErrorCode(one.error_code) for one in found} - {ErrorCode.NONE}
            if not wrong:
                return sum(one.offset for one in found)
            if wrong - _STARTING or time.monotonic() > late_s:
                raise RuntimeError(f"partitions without an end: {wrong}")
            time.sleep(0.1)
