"""Which partition a key goes to, against kafka-python's port of Kafka's own hash."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as theirs

from kohort.admin.producing import murmur2, partition_of


@given(key=st.binary(max_size=40))
def test_the_hash_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


@given(key=st.binary(max_size=40), count=st.integers(1, 1000))
def test_a_partition_is_one_of_the_topics(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count


def test_keys_go_to_every_partition() -> None:
    assert {partition_of(b"%d" % number, 6) for number in range(100)} == set(range(6))
