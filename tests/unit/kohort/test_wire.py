"""The command line's Kafka client against brokers of other times, and against what is no broker.

The other side is a socket that answers as a test says: there is no broker to be had that is so old,
or so wrong.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any

import pytest

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.groups import describe_group, groups_of
from kohort.admin.offsets import START
from kohort.admin.users import disabled_users
from kohort.client.net.address import Address
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.codec import codec
from kohort.protocol.framing import read_request_prefix, response_frame, skip_header_tags
from kohort.protocol.message import REQUESTS, RESPONSES, schema_of
from tests.support import messages as m

Answer = Callable[[bytes], bytes]
"""From a frame to a frame, both with their sizes; empty for closing the connection."""

KEYS = {"ListOffsets": 2, "Metadata": 3, "OffsetFetch": 9, "FindCoordinator": 10}
KEYS |= {"DescribeGroups": 15, "ListGroups": 16, "ApiVersions": 18, "DescribeConfigs": 32}

TOO_NEW = codec(m.ApiVersionsResponse, 0).encode(m.ApiVersionsResponse(error_code=35, api_keys=[]))


@contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """A port that answers each frame."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, answer), daemon=True).start()
        yield server.getsockname()[1]


def _accept(server: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        # A client that is not content leaves without reading the rest.
        with connection, suppress(ConnectionError):
            while head := connection.recv(4, socket.MSG_WAITALL):
                body = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                told = answer(body)
                if not told:
                    break
                connection.sendall(told)


def old_broker(answers: Mapping[str, Any], versions: Mapping[str, int]) -> Answer:
    """One whose newest version of an API is the one given, 0 for those that are not."""

    def answer(frame: bytes) -> bytes:
        head, position = read_request_prefix(frame)
        request = REQUESTS[head.api_key]
        name = request.__name__.removesuffix("Request")
        if name == "ApiVersions" and head.api_version > 0:
            # It does not know the question, and says so in the oldest answer.
            return response_frame(head.correlation_id, TOO_NEW, header_has_tags=False)
        is_flexible = schema_of(request).is_flexible(head.api_version)
        if is_flexible:
            position = skip_header_tags(frame, position)
        asked: object
        asked, _ = codec(request, head.api_version).decode(frame, position)
        told = answers.get(name, default)
        if callable(told):
            told = told(asked)
        body = codec(RESPONSES[head.api_key], head.api_version).encode(told)
        return response_frame(head.correlation_id, body, header_has_tags=is_flexible)

    listed = [
        m.ApiVersion(api_key=key, min_version=0, max_version=versions.get(name, 0))
        for name, key in KEYS.items()
    ]
    default = m.ApiVersionsResponse(error_code=0, api_keys=listed)
    return answer


def cluster_at(port: int, timeout_s: float = 5) -> Cluster:
    return Cluster([Address("127.0.0.1", port)], timeout_s)


OLD = {"ListOffsets": 1, "Metadata": 4, "OffsetFetch": 2, "DescribeGroups": 1}


def listed_offset(request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
    """The log of t-3 is from 0 to 42."""
    offset = 0 if request.topics[0].partitions[0].timestamp == START else 42
    found = m.ListOffsetsPartitionResponse(partition_index=3, error_code=0, offset=offset)
    return m.ListOffsetsResponse(topics=[m.ListOffsetsTopicResponse(name="t", partitions=[found])])


def old_answers(port: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    partition = m.MetadataResponsePartition(
        error_code=0, partition_index=3, leader_id=7, replica_nodes=[7], isr_nodes=[7]
    )
    position = m.OffsetFetchResponsePartition(
        partition_index=3, committed_offset=40, metadata="", error_code=0
    )
    return {
        "Metadata": m.MetadataResponse(
            brokers=[m.MetadataResponseBroker(node_id=7, host="127.0.0.1", port=port)],
            topics=[m.MetadataResponseTopic(error_code=0, name="t", partitions=[partition])],
        ),
        "FindCoordinator": m.FindCoordinatorResponse(node_id=7, host="127.0.0.1", port=port),
        "ListGroups": m.ListGroupsResponse(
            error_code=0, groups=[m.ListedGroup(group_id="g", protocol_type="consumer")]
        ),
        "DescribeGroups": m.DescribeGroupsResponse(
            groups=[
                m.DescribedGroup(
                    error_code=0,
                    group_id="g",
                    group_state="Empty",
                    protocol_type="consumer",
                    protocol_data="",
                    members=[],
                )
            ]
        ),
        "OffsetFetch": m.OffsetFetchResponse(
            topics=[m.OffsetFetchResponseTopic(name="t", partitions=[position])]
        ),
        "ListOffsets": listed_offset,
    } | changes


@contextmanager
def cluster_of_old(**changes: Any) -> Iterator[Cluster]:  # noqa: ANN401
    answers: dict[str, Any] = {}
    with listening(old_broker(answers, OLD)) as port:
        answers |= old_answers(port, **changes)
        with cluster_at(port) as cluster:
            yield cluster


def test_a_broker_of_another_decade_lists_and_describes_its_groups() -> None:
    with cluster_of_old() as cluster:
        (listed,) = groups_of(cluster, cluster.brokers()[0])
        group = describe_group(cluster, "g")
    assert (listed.group_id, listed.group_state) == ("g", "")
    assert group is not None
    assert (group.state, group.positions[0].lag) == ("Empty", 2)


def test_a_group_that_an_old_broker_calls_dead_is_not_there() -> None:
    dead = m.DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Dead",
        protocol_type="",
        protocol_data="",
        members=[],
    )
    with cluster_of_old(DescribeGroups=m.DescribeGroupsResponse(groups=[dead])) as cluster:
        assert describe_group(cluster, "g") is None


def test_an_error_of_the_broker_is_told_by_its_name() -> None:
    refused = m.FindCoordinatorResponse(error_code=30)
    with (
        cluster_of_old(FindCoordinator=refused) as cluster,
        pytest.raises(RefusedError, match="GROUP_AUTHORIZATION_FAILED"),
    ):
        describe_group(cluster, "g")


def test_a_coordinator_that_is_still_loading_is_asked_again() -> None:
    loading = iter([m.FindCoordinatorResponse(error_code=15)])
    answers: dict[str, Any] = {}

    def answer(frame: bytes) -> bytes:
        head, _ = read_request_prefix(frame)
        is_first = head.api_key == KEYS["FindCoordinator"]
        changed = next(loading, None) if is_first else None
        told = answers if changed is None else answers | {"FindCoordinator": changed}
        return old_broker(told, OLD)(frame)

    with listening(answer) as port:
        answers |= old_answers(port)
        with cluster_at(port) as cluster:
            assert describe_group(cluster, "g") is not None
    assert next(loading, None) is None


def test_the_configs_of_a_broker_are_those_that_it_tells_itself() -> None:
    """A broker of Kafka names any other as the controller, another one each time."""
    asked: list[tuple[int, str]] = []
    controllers = cycle((7, 8))

    def metadata(_: m.MetadataRequest) -> m.MetadataResponse:
        brokers = [
            m.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in ports.items()
        ]
        return m.MetadataResponse(brokers=brokers, topics=[], controller_id=next(controllers))

    def answers(node_id: int) -> dict[str, Any]:
        def describe(request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
            (resource,) = request.resources
            asked.append((node_id, resource.resource_name))
            result = m.DescribeConfigsResult(
                error_code=0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            return m.DescribeConfigsResponse(results=[result])

        return {"Metadata": metadata, "DescribeConfigs": describe}

    versions = OLD | {"DescribeConfigs": 1}
    with (
        listening(old_broker(answers(7), versions)) as one,
        listening(old_broker(answers(8), versions)) as other,
    ):
        ports = {7: one, 8: other}
        with cluster_at(one) as cluster:
            for _ in range(3):
                disabled_users(cluster)
    assert len(asked) == 3
    assert all(name == str(node_id) for node_id, name in asked)


def test_an_api_that_a_broker_does_not_have_is_named() -> None:
    versions = m.ApiVersionsResponse(error_code=0, api_keys=[])
    with (
        listening(old_broker({"ApiVersions": versions}, {})) as port,
        pytest.raises(UnsupportedVersionError, match=f"{port}: .*not know MetadataRequest"),
        cluster_at(port) as cluster,
    ):
        groups_of(cluster, cluster.brokers()[0])


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 0x7FFF_FFFF),
        struct.pack(">i", -5),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">iih", 6, 999, 0),
        struct.pack(">iihi", 10, 1, 0, 0x7FFF_FFFF),
        struct.pack(">iihi", 12, 1, 0, 0) + b"xx",
        struct.pack(">iih", 6, 1, 0),
    ],
)
def test_what_is_no_answer_ends_the_connection_with_a_reason(told: bytes) -> None:
    with listening(lambda _: told) as port, pytest.raises(DisconnectedError) as raised:
        cluster_at(port)
    assert str(raised.value).startswith(f"127.0.0.1:{port}")


def test_silence_ends_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(DisconnectedError, match="timed out"),
    ):
        cluster_at(server.getsockname()[1], 0.05)
