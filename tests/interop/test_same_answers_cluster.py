"""What a broker says of itself: ApiVersions, DescribeCluster, DescribeLogDirs."""

import pytest

from kohort.broker.handlers import load_handlers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import API_VERSIONS_KEY
from tests.interop.same_answers import differences
from tests.interop.same_answers.each import Value, each
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import NOWHERE, batch, create_topic, produce
from tests.support import messages as m
from tests.support.network.wire import RawClient, framed, header, response_in


def api_versions_request(
    name: str = "tests", version: str = "1.0", **expected: Value
) -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(
        client_software_name=name, client_software_version=version, **expected
    )


def test_api_versions(pair: Pair) -> None:
    for version in range(5):
        pair.ask(api_versions_request(), version, differs=differences.SERVED_APIS)
    answers = pair.ask(api_versions_request(), 5, differs=differences.SERVED_APIS)
    kafka, kohort = ({one.api_key for one in answer.api_keys} for answer in answers)
    assert kafka - kohort == set().union(*differences.NOT_SERVED.values())


WRONG_SOFTWARE = [
    *(("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1-"), ("a", "."), ("ä", "1")),
    ("a\n", "1"),
]


@pytest.mark.parametrize(("name", "software_version"), WRONG_SOFTWARE)
def test_software_that_says_its_name_wrongly(pair: Pair, name: str, software_version: str) -> None:
    for version in range(3, 6):
        pair.ask(api_versions_request(name, software_version), version)


def test_clients_that_expect_another_broker(pair: Pair) -> None:
    cluster_id = each(*(side.facts.cluster_id for side in pair.sides))
    for expected in (
        {"cluster_id": cluster_id},
        {"node_id": 1},
        {"cluster_id": "other", "node_id": 1},
        {"cluster_id": cluster_id, "node_id": 2},
        {"cluster_id": "", "node_id": 1},
        {"cluster_id": cluster_id, "node_id": -2},
    ):
        pair.ask(api_versions_request(**expected), 5)
    right = api_versions_request(cluster_id=cluster_id, node_id=1)
    pair.ask(right, 5, differs=differences.SERVED_APIS)


def test_versions_that_do_not_exist(pair: Pair) -> None:
    """Only ApiVersions is answered then, in v0, because nothing is agreed on before it."""
    for version in (6, 7, 100, 32767, -1):
        for side in pair.sides:
            with RawClient(side.port) as client:
                client.send(framed(header(API_VERSIONS_KEY, version, tags=b"\x00")))
                answer = response_in(client.receive(), m.ApiVersionsResponse, 0)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [
                (API_VERSIONS_KEY, 0, 5)
            ]


def test_requests_that_neither_broker_serves_close_the_connection(pair: Pair) -> None:
    apis = load_handlers().values()
    for key, version in (
        *((api.key, api.versions.high + 1) for api in apis if api.key != API_VERSIONS_KEY),
        *((api.key, api.versions.low - 1) for api in apis if api.key != API_VERSIONS_KEY),
        *((4, 0), (5, 0), (6, 0), (7, 0), (-1, 0), (95, 0), (999, 0)),
    ):
        for side in pair.sides:
            with RawClient(side.port) as client:
                client.send(framed(header(key, version) + bytes(16)))
                assert client.is_closed(), (side.name, key, version)


def test_describe_cluster(pair: Pair) -> None:
    for version in range(3):
        for operations in (False, True):
            for endpoint_type in (1, 2, 0, 3) if version else (1,):
                for fenced in (False, True) if version == 2 else (False,):
                    request = m.DescribeClusterRequest(
                        include_cluster_authorized_operations=operations,
                        endpoint_type=endpoint_type,
                        include_fenced_brokers=fenced,
                    )
                    pair.ask(request, version)


def test_describe_log_dirs(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    produce(pair, topic, batch(b"x" * 1000), batch(b"y"))
    for version in range(1, 6):
        for partitions in ([0, 1], [1], [0, 0], [2, -1], []):
            for name in (topic.name, NOWHERE.name):
                asked = m.DescribableLogDirTopic(topic=name, partitions=partitions)
                pair.ask(m.DescribeLogDirsRequest(topics=[asked]), version)
        pair.ask(m.DescribeLogDirsRequest(topics=[]), version)
        pair.ask(m.DescribeLogDirsRequest(topics=None), version, about=[topic.name])
