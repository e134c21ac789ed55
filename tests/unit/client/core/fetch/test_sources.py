from kohort.client.core.fetch.sources import FetchSources
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader
from tests.support.known_cluster import EPOCH, OneTopic

A = TopicPartition("t", 0)


def test_a_follower_is_read_from_until_the_leader_changes_or_names_none() -> None:
    cluster = OneTopic(1)
    cluster.nodes.add(2)
    sources = FetchSources(cluster, rack="a", lifetime_ms=1_000)
    present, former = Leader(1, EPOCH), Leader(1, EPOCH - 1)
    for named_by, node_id, is_read_from in (
        (present, 2, True),
        (present, -1, False),
        (present, 2, True),
        (present, 1, False),
        (former, 2, False),
    ):
        sources.leader_named(A, node_id, named_by, 0)
        assert sources.node(A, 0) == (2 if is_read_from else 1)
