"""Validates new topics and new partitions as a Kafka cluster of one broker does.

Pure functions. They raise KafkaError with Kafka's code and, in substance, its message.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kohort.broker.config import BrokerConfig
from kohort.protocol.errors import ErrorCode, KafkaError

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Maximum partitions that one request may create, as in Kafka."""

Assignment = Sequence[int]
"""Broker ids of the replicas of one partition."""


class NewTopic(NamedTuple):
    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Assignment]] = ()
    """(partition, brokers); empty if the broker is to place the partitions."""
    configs: Mapping[str, str] = {}


def checked_partition_count(new: NewTopic, broker: BrokerConfig) -> int:
    """Return the partition count of a new topic. Raises KafkaError."""
    if new.assignments:
        return _manual_partition_count(new, broker.node_id)
    factor = new.replication_factor
    if factor != USE_DEFAULT and factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partition_count != USE_DEFAULT and new.partition_count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = broker.default_replication_factor if factor == USE_DEFAULT else factor
    if factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of"
            f" {factor} cannot be reached because only 1 broker(s) are registered.",
        )
    return broker.num_partitions if new.partition_count == USE_DEFAULT else new.partition_count


def _manual_partition_count(new: NewTopic, node_id: int) -> int:
    for value, name in (
        (new.replication_factor, "replication factor"),
        (new.partition_count, "numPartitions"),
    ):
        if value != USE_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    seen: set[int] = set()
    for index, brokers in new.assignments:
        if index in seen:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        seen.add(index)
        _check_assignment(brokers, node_id)
    if seen != set(range(len(seen))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return len(seen)


def check_expansion(
    name: str, have: int, want: int, assignments: Sequence[Assignment] | None, node_id: int
) -> None:
    """Check that a topic may get ``want`` partitions in total. Raises KafkaError."""
    if want == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if want < have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {have} partition(s); {want} would not be an increase.",
        )
    if want - have > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of additional partitions per request.",
        )
    if assignments is None:
        return
    if len(assignments) != want - have:
        raise _bad_assignment(
            f"Attempted to add {want - have} additional partition(s), but only"
            f" {len(assignments)} assignment(s) were specified."
        )
    for brokers in assignments:
        _check_assignment(brokers, node_id)


def _check_assignment(brokers: Assignment, node_id: int) -> None:
    if not brokers:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker in brokers:
        if broker != node_id:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is"
                " registered."
            )
    if len(brokers) > 1:
        raise _bad_assignment(
            f"The manual partition assignment includes the broker {node_id} more than once."
        )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
