"""What is asked of clusters is answered as by a Kafka of one node."""

import itertools
from typing import Final

import pytest

from kohort.protocol.messages.replicas import TopicPartitions
from tests.interop.same_answers import differences
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import create_topic
from tests.support import messages as m

METADATA: Final = "__cluster_metadata"
NOWHERE: Final = "no-such-topic"
ANY_KIND, PREFIXED, LITERAL, TOPIC, READ, ALLOW = 1, 4, 3, 2, 3, 3


def test_no_leader_has_to_be_elected(pair: Pair) -> None:
    name = create_topic(pair).name
    for version in range(3):
        asked: list[tuple[str, list[int]]]
        for asked in (
            [],
            [(name, [0])],
            [(name, [0, 7, -1, 0])],
            [(name, [0]), (name, [0])],
            [(name, []), (NOWHERE, [0]), ("", [0])],
        ):
            wanted = [TopicPartitions(topic=topic, partitions=ids) for topic, ids in asked]
            for kind in (0, 1, 2, -1) if version else (0,):
                request = m.ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
                pair.ask(request, version)
        for kind in (0, 2) if version else (0,):
            request = m.ElectLeadersRequest(election_type=kind, topic_partitions=None)
            pair.ask(request, version, about=[name])


def test_nothing_is_being_moved(pair: Pair) -> None:
    name = create_topic(pair).name
    nothing: list[int] = []
    for asked in ([], [(name, [0, 7])], [(NOWHERE, [0])], [("", nothing)]):
        wanted = [
            m.ListPartitionReassignmentsTopics(name=topic, partition_indexes=ids)
            for topic, ids in asked
        ]
        pair.ask(m.ListPartitionReassignmentsRequest(topics=wanted), 0)
    pair.ask(m.ListPartitionReassignmentsRequest(topics=None), 0)


def test_partitions_are_moved_to_where_they_are_and_nowhere_else(pair: Pair) -> None:
    name = create_topic(pair).name
    places: list[list[int] | None] = [[1], None, [], [2], [1, 2], [1, 1], [-1]]
    partitions = [
        [m.ReassignablePartition(partition_index=index, replicas=replicas)]
        for index, replicas in itertools.product((0, 7, -1), places)
    ]
    partitions += [[], [*partitions[0], *partitions[1]]]
    for version, allowed in ((0, True), (1, True), (1, False)):
        for topic, moved in itertools.product((name, NOWHERE), partitions):
            request = m.AlterPartitionReassignmentsRequest(
                allow_replication_factor_change=allowed,
                topics=[m.ReassignableTopic(name=topic, partitions=moved)],
            )
            pair.ask(request, version)
        pair.ask(
            m.AlterPartitionReassignmentsRequest(
                allow_replication_factor_change=allowed, topics=[]
            ),
            version,
        )


def test_the_directory_that_a_partition_is_in_can_be_asked_for(pair: Pair) -> None:
    name = create_topic(pair).name

    def directory(answer: Value) -> str:
        assert isinstance(answer, m.DescribeLogDirsResponse)
        return answer.results[0].log_dir

    here = pair.peek(m.DescribeLogDirsRequest(topics=None), 4).each(directory)
    for version in (1, 2):
        for path in (here, "/no/such/directory", "relative"):
            for topic, indexes in (
                (name, [0]),
                (name, [7]),
                (name, [-1]),
                (name, []),
                (NOWHERE, [0]),
            ):
                asked = m.AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                pair.ask(
                    m.AlterReplicaLogDirsRequest(
                        dirs=[m.AlterReplicaLogDir(path=path, topics=[asked])]
                    ),
                    version,
                )
        pair.ask(m.AlterReplicaLogDirsRequest(dirs=[]), version)


def test_one_node_keeps_the_metadata(pair: Pair) -> None:
    def asking(*topics: tuple[str, list[int]]) -> m.DescribeQuorumRequest:
        return m.DescribeQuorumRequest(
            topics=[
                m.TopicAsked(
                    topic_name=name,
                    partitions=[m.PartitionAsked(partition_index=index) for index in indexes],
                )
                for name, indexes in topics
            ]
        )

    for version in range(3):
        pair.ask(asking((METADATA, [0])), version, differs=differences.NO_METADATA_LOG)
        for request in (
            asking(),
            asking((METADATA, [])),
            asking((METADATA, [1])),
            asking((METADATA, [0, 0])),
            asking(("x", [0])),
            asking((METADATA, [0]), ("x", [3])),
        ):
            pair.ask(request, version)


def test_features_that_there_are_not_cannot_be_changed(pair: Pair) -> None:
    for version in range(3):
        for level, kind in ((1, 1), (0, 3), (99, 1), (1, 9)):
            update = m.FeatureUpdateKey(
                feature="no.such.feature",
                max_version_level=level,
                upgrade_type=kind if version else 1,
            )
            pair.ask(m.UpdateFeaturesRequest(feature_updates=[update]), version)
        pair.ask(m.UpdateFeaturesRequest(feature_updates=[]), version)


@pytest.mark.parametrize("version", range(3))
def test_a_feature_may_be_set_to_the_level_that_it_has(pair: Pair, version: int) -> None:
    def update(feature: str, level: int, kind: int = 1) -> m.FeatureUpdateKey:
        return m.FeatureUpdateKey(
            feature=feature, max_version_level=level, upgrade_type=kind if version else 1
        )

    same = update("transaction.version", 2)
    for updates in (
        [same],
        [same, same],
        [update("transaction.version", 2, 2)],
        [update("transaction.version", 2, 3)],
        [update("transaction.version", 2, 0)],
        [update("transaction.version", 2, 9)],
        [update("transaction.version", 3)],
        [update("transaction.version", -1)],
        [same, update("no.such.feature", 1)],
    ):
        pair.ask(m.UpdateFeaturesRequest(feature_updates=updates), version)


def test_resources_with_configs_are_listed(pair: Pair) -> None:
    for kinds in ([], [2], [4], [8], [16], [32], [2, 2], [4, 8], [0], [64], [-1], [2, 99]):
        request = m.ListConfigResourcesRequest(resource_types=kinds)
        pair.ask(request, 1, about=[create_topic(pair).name, "1"])
    pair.ask(m.ListConfigResourcesRequest(), 0)


def test_there_are_no_rules_without_an_authorizer(pair: Pair) -> None:
    for version in (1, 2, 3):
        for kind, pattern in ((TOPIC, LITERAL), (ANY_KIND, ANY_KIND), (TOPIC, PREFIXED)):
            pair.ask(
                m.DescribeAclsRequest(
                    resource_type_filter=kind,
                    resource_name_filter=None,
                    pattern_type_filter=pattern,
                    principal_filter=None,
                    host_filter=None,
                    operation=ANY_KIND,
                    permission_type=ANY_KIND,
                ),
                version,
            )
            rule = m.DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter="t",
                pattern_type_filter=pattern,
                principal_filter="User:a",
                host_filter="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for filters in ([], [rule], [rule, rule]):
                pair.ask(m.DeleteAclsRequest(filters=filters), version)
        creation = m.AclCreation(
            resource_type=TOPIC,
            resource_name="t",
            principal="User:a",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        for creations in ([], [creation], [creation, creation]):
            pair.ask(m.CreateAclsRequest(creations=creations), version)


def test_a_delegation_token_needs_authentication(pair: Pair) -> None:
    for version in (1, 2, 3):
        pair.ask(m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
        pair.ask(m.DescribeDelegationTokenRequest(owners=None), version)
    for version in (1, 2):
        pair.ask(m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
        pair.ask(m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), version)
