from kohort.client.core.fetch.sources import ReadReplicas
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, NEXT = Leader(1, 5), Leader(1, 6)


def replicas() -> ReadReplicas:
    found = ReadReplicas(1_000)
    assert found.named(A, 2, LEADER, 0)
    return found


def test_another_leader_or_epoch_has_to_name_it_again() -> None:
    one = replicas()
    assert one.find(A, NEXT, 0) is None
    assert one.find(A, LEADER, 0) is None
    assert one.named(A, 3, NEXT, 0)
    assert one.find(A, NEXT, 0) == 3


def test_a_leader_that_names_no_replica_or_itself_is_read_from() -> None:
    for node_id in (-1, 1):
        one = replicas()
        assert not one.named(A, node_id, LEADER, 0)
        assert one.find(A, LEADER, 0) is None
