from kohort.client.core.fetch.sources import LEADER_ALONE_MS, ReadReplicas
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, NEXT = Leader(1, 5), Leader(1, 6)


def replicas() -> ReadReplicas:
    found = ReadReplicas(1_000)
    assert found.named(A, 2, LEADER, 0)
    return found


def test_the_follower_is_read_from_until_its_time_is_over() -> None:
    one = replicas()
    assert [one.find(A, LEADER, now) for now in (0, 999, 1_000, 999)] == [2, 2, None, None]
    assert one.find(B, LEADER, 0) is None


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


def test_none_is_named_for_a_while_after_one_has_failed() -> None:
    one = replicas()
    one.failed(A, 3, 10)
    assert one.find(A, LEADER, 10) == 2, "another broker has failed"
    assert one.may_be_named([A], 10)
    one.failed(A, 2, 10)
    assert one.find(A, LEADER, 10) is None
    for now, may in ((10, False), (LEADER_ALONE_MS + 9, False), (LEADER_ALONE_MS + 10, True)):
        assert one.may_be_named([A, B], now) is may
        assert one.may_be_named([B], now)


def test_nothing_is_kept_of_partitions_that_are_gone() -> None:
    one = replicas()
    one.named(B, 2, LEADER, 0)
    one.failed(B, 2, 0)
    one.keep_only([])
    assert one.find(A, LEADER, 0) is None
    assert one.may_be_named([A, B], 0)
