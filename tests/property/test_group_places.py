"""Where groups live in __consumer_offsets, by Kafka's own class in a JVM."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.broker.core.coordinator_partitions import partition_of
from tests.support.processes.java_process import JavaProcess

NAMES = [
    *("", "g", "billing", "orders", "my-group", "group-\xe9", "\u65e5\u672c", "\U0001f600"),
    # The hash that has no absolute value.
    *("polygenelubricants", "And so our story begins", "f5a5a608"),
    *(f"consumer-{number}" for number in range(2_000)),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaProcess]:
    with JavaProcess("MessageCodec", "broker") as process:
        yield process


@settings(max_examples=20, deadline=None)
@example(names=NAMES, count=50)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=200),
    count=st.integers(1, 1_000),
)
def test_a_group_lives_where_kafkas_hash_puts_it(
    kafka: JavaProcess, names: list[str], count: int
) -> None:
    hashes = kafka.call(texts=names)["hashes"]

    assert [partition_of(name, count) for name in names] == [each % count for each in hashes]
