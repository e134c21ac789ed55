"""The partition that a key leads to is the one that other producers choose."""

from random import Random

from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kohort.testing.kit.partitioner import murmur2, partition_for


def test_murmur2_is_that_of_other_clients() -> None:
    random = Random(1)
    for length in range(40):
        key = random.randbytes(length)
        assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_a_key_has_one_of_the_partitions() -> None:
    assert {partition_for(b"%d" % number, 6) for number in range(100)} == set(range(6))
