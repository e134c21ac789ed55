"""New topics and partitions are checked as by a Kafka of one broker, with its answers."""

from collections.abc import Sequence

import pytest

from kohort.broker.config import BrokerConfig
from kohort.broker.topics.creation import NewTopic, check_expansion, checked_partition_count
from kohort.protocol.errors import ErrorCode, KafkaError


def count(broker: BrokerConfig | None = None, **wanted: object) -> int:
    return checked_partition_count(
        NewTopic(name="orders", **wanted),  # type: ignore[arg-type]
        broker or BrokerConfig(),
    )


def refusal(**wanted: object) -> tuple[str, str | None]:
    with pytest.raises(KafkaError) as refused:
        count(None, **wanted)
    return refused.value.code.name, refused.value.message


def test_the_broker_decides_what_is_left_open() -> None:
    assert count() == 1
    assert count(BrokerConfig(num_partitions=6)) == 6
    assert count(partition_count=3, replication_factor=1) == 3
    assert count(assignments=[(1, [1]), (0, [1])]) == 2


@pytest.mark.parametrize("number", [0, -2])
def test_a_number_of_partitions_is_positive(number: int) -> None:
    assert refusal(partition_count=number) == (
        "INVALID_PARTITIONS",
        "Number of partitions was set to an invalid non-positive value.",
    )


@pytest.mark.parametrize("factor", [0, -2])
def test_a_replication_factor_is_positive(factor: int) -> None:
    code, message = refusal(replication_factor=factor)
    assert code == "INVALID_REPLICATION_FACTOR"
    assert message == "Replication factor must be larger than 0, or -1 to use the default value."


def test_one_broker_holds_one_replica() -> None:
    assert refusal(replication_factor=2)[0] == "INVALID_REPLICATION_FACTOR"
    with pytest.raises(KafkaError, match="only 1 broker"):
        count(BrokerConfig(default_replication_factor=3))


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (
            {"assignments": [(0, [1])], "replication_factor": 1},
            "INVALID_REQUEST",
            "replication factor was not set to -1",
        ),
        (
            {"assignments": [(0, [1])], "partition_count": 3},
            "INVALID_REQUEST",
            "numPartitions was not set to -1",
        ),
        ({"assignments": [(0, [1]), (2, [1])]}, "INVALID_REPLICA_ASSIGNMENT", "consecutive"),
        ({"assignments": [(1, [1])]}, "INVALID_REPLICA_ASSIGNMENT", "consecutive"),
        ({"assignments": [(-1, [1])]}, "INVALID_REPLICA_ASSIGNMENT", "consecutive"),
        (
            {"assignments": [(0, [1]), (0, [1])]},
            "INVALID_REPLICA_ASSIGNMENT",
            "multiple manual partition assignments for partition 0",
        ),
        ({"assignments": [(0, [2])]}, "INVALID_REPLICA_ASSIGNMENT", "includes broker 2, but no"),
        ({"assignments": [(0, [])]}, "INVALID_REPLICA_ASSIGNMENT", "empty replica list"),
        ({"assignments": [(0, [1, 1])]}, "INVALID_REPLICA_ASSIGNMENT", "1 more than once"),
    ],
)
def test_a_manual_assignment_must_fit_one_broker(
    wanted: dict[str, object], code: str, message: str
) -> None:
    answered, text = refusal(**wanted)
    assert answered == code
    assert message in str(text)


def expansion(have: int, want: int, assignments: Sequence[Sequence[int]] | None = None) -> None:
    check_expansion("orders", have, want, assignments, 1)


@pytest.mark.parametrize(
    ("want", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            10_003,
            None,
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of additional partitions per request.",
        ),
        (
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [[7]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
    ],
)
def test_an_expansion_that_cannot_be_is_refused(
    want: int, assignments: Sequence[Sequence[int]] | None, code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        expansion(2, want, assignments)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_an_expansion_that_can_be_is_accepted() -> None:
    expansion(2, 3)
    expansion(2, 4, [[1], [1]])
