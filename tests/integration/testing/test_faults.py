"""Faults between clients and the broker of a test."""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing import Kafka, kafka_settings
from tests.support import messages as m
from tests.support.clients.confluent_client import QUIET
from tests.support.network.wire import (
    TIMEOUT_S,
    RawClient,
    framed,
    request_body,
    response_in,
)


def heartbeat(
    kafka: Kafka, client_id: bytes = b"w1", group: str = "billing", *, timeout_s: float = TIMEOUT_S
) -> int:
    """The error of an unknown member's heartbeat; raises where there is no answer."""
    request = m.HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    with RawClient(kafka.port, timeout_s=timeout_s) as client:
        client.send(framed(request_body(request, 4, client_id=client_id)))
        return response_in(client.receive(), m.HeartbeatResponse, 4).error_code


def produce(client: RawClient, topic: str) -> int:
    batch = encode_batch([Record(b"v", b"k", (), 1)])
    data = m.PartitionProduceData(index=0, records=memoryview(batch))
    request = m.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1_000,
        topic_data=[m.TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.call(request, 9, m.ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


NOBODY = ErrorCode.UNKNOWN_MEMBER_ID


def test_an_error_is_answered_as_often_as_it_was_asked_for(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", error="NOT_COORDINATOR", times=2) as fault:
        codes = [heartbeat(kafka) for _ in range(3)]
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, NOBODY]
    assert fault.hits == 2


def test_a_fault_ends_with_its_context(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", error="NOT_COORDINATOR"):
        assert heartbeat(kafka) == ErrorCode.NOT_COORDINATOR
    assert heartbeat(kafka) == NOBODY


def test_a_fault_is_of_one_client_or_group(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", client_id="w1", group="billing", error="NOT_COORDINATOR"):
        assert heartbeat(kafka, b"w1", "billing") == ErrorCode.NOT_COORDINATOR
        assert heartbeat(kafka, b"w2", "billing") == NOBODY
        assert heartbeat(kafka, b"w1", "orders") == NOBODY


@pytest.mark.parametrize(
    ("request_of", "version"),
    [
        (
            lambda *ids: m.OffsetFetchRequest(
                groups=[m.OffsetFetchRequestGroup(group_id=one, topics=None) for one in ids]
            ),
            8,
        ),
        (lambda *ids: m.DeleteGroupsRequest(groups_names=list(ids)), 2),
        (lambda *ids: m.DescribeGroupsRequest(groups=list(ids)), 5),
        (lambda *ids: m.FindCoordinatorRequest(coordinator_keys=list(ids)), 4),
        (lambda *ids: m.FindCoordinatorRequest(key=ids[-1]), 3),
    ],
    ids=["OffsetFetch", "DeleteGroups", "DescribeGroups", "FindCoordinator", "one key"],
)
def test_a_fault_of_a_group_applies_to_requests_that_name_several(
    kafka: Kafka, request_of: Callable[..., object], version: int
) -> None:
    with kafka.fault("*", group="billing", observe=True) as fault, RawClient(kafka.port) as client:
        client.ask(request_of("orders", "other"), version)
        assert fault.hits == 0
        client.ask(request_of("orders", "billing"), version)
        assert fault.hits == 1


@pytest.mark.parametrize("version", [3, 4])
def test_a_fault_of_a_group_does_not_match_a_transactional_id(kafka: Kafka, version: int) -> None:
    keys = {"coordinator_keys": ["billing"]} if version >= 4 else {"key": "billing"}
    with kafka.fault("*", group="billing", observe=True) as fault, RawClient(kafka.port) as client:
        client.ask(m.FindCoordinatorRequest(key_type=1, **keys), version)
    assert fault.hits == 0


def test_when_looks_at_the_request(kafka: Kafka) -> None:
    with kafka.fault(
        "Heartbeat", error="NOT_COORDINATOR", when=lambda request: request.generation_id > 1
    ) as fault:
        assert heartbeat(kafka) == NOBODY
    assert fault.hits == 0


def test_what_is_dropped_is_never_answered_and_does_not_hold_up_the_end(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", drop=True) as fault:
        with pytest.raises(TimeoutError):
            heartbeat(kafka, timeout_s=0.2)
        fault.wait()
    assert fault.hits == 1
    with RawClient(kafka.port) as client, kafka.fault("Heartbeat", drop=True) as fault:
        request = m.HeartbeatRequest(group_id="billing", generation_id=1, member_id="nobody")
        client.send(framed(request_body(request, 4)))
        fault.wait()
        kafka.restart()


def test_a_connection_is_cut_off(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", disconnect=True), pytest.raises((AssertionError, OSError)):
        heartbeat(kafka)
    assert heartbeat(kafka) == NOBODY


def test_what_is_late_comes_all_the_same_and_others_do_not_wait(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", client_id="slow", delay_ms=50) as fault:
        request = m.HeartbeatRequest(group_id="billing", generation_id=1, member_id="nobody")
        with RawClient(kafka.port) as client:
            client.send(framed(request_body(request, 4, client_id=b"slow")))
            fault.wait()
            assert heartbeat(kafka, b"quick") == NOBODY
            assert response_in(client.receive(), m.HeartbeatResponse, 4).error_code == NOBODY


def test_an_observer_counts_and_lets_the_next_fault_decide(kafka: Kafka) -> None:
    with (
        kafka.fault("Heartbeat", observe=True) as seen,
        kafka.fault("Heartbeat", error="NOT_COORDINATOR", times=1),
    ):
        assert heartbeat(kafka) == ErrorCode.NOT_COORDINATOR
        assert heartbeat(kafka) == NOBODY
    assert seen.hits == 2


def test_a_fault_is_of_one_topic_and_the_record_is_not_written(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.create_topic("others")
    with (
        kafka.fault("Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER"),
        RawClient(kafka.port) as client,
    ):
        assert produce(client, "orders") == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produce(client, "others") == ErrorCode.NONE
    assert not kafka.records("orders")


def test_a_topic_is_known_by_its_id_and_a_fetch_fails_by_partition(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    topic = kafka._do(lambda: kafka._kit.broker.services.topics.get("orders"))
    assert topic is not None
    asked = m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[m.FetchTopic(topic_id=topic.topic_id, partitions=[asked])],
        forgotten_topics_data=[],
    )
    with (
        kafka.fault("Fetch", topic="orders", error="NOT_LEADER_OR_FOLLOWER"),
        RawClient(kafka.port) as client,
    ):
        answer = client.call(request, 13, m.FetchResponse)
    assert not answer.error_code
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_metadata_fails_by_topic_and_tells_where_the_broker_is(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="orders")])
    with (
        kafka.fault("Metadata", topic="orders", error="LEADER_NOT_AVAILABLE"),
        RawClient(kafka.port) as client,
    ):
        answer = client.call(request, 9, m.MetadataResponse)
    assert [broker.port for broker in answer.brokers] == [kafka.port]
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("orders", ErrorCode.LEADER_NOT_AVAILABLE)


@kafka_settings({"authorizer.class.name": "kohort", "allow.everyone.if.no.acl.found": True})
def test_the_test_itself_may_do_everything(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    rule = AclBinding(
        *(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:*", "*"),
        *(AclOperation.ALL, AclPermissionType.DENY),
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for made in admin.create_acls([rule]).values():
        made.result(30)
    kafka.produce("orders", b"x")
    assert len(kafka.records("orders")) == 1


def test_what_the_test_itself_writes_meets_no_fault(kafka: Kafka) -> None:
    with kafka.fault("Produce", error="KAFKA_STORAGE_ERROR") as fault:
        kafka.produce("orders", b"x")
    assert fault.hits == 0


def test_faults_outlive_the_broker(kafka: Kafka) -> None:
    with kafka.fault("Heartbeat", error="NOT_COORDINATOR"):
        kafka.restart()
        assert heartbeat(kafka) == ErrorCode.NOT_COORDINATOR


def test_where_nothing_is_set_requests_go_to_their_handlers(kafka: Kafka) -> None:
    def handlers() -> bool:
        router = kafka._kit.broker.router
        return all(route.handler is route.api.handler for route in router.routes.values())

    with RawClient(kafka.port) as client:
        client.call(m.ListGroupsRequest(), 0, m.ListGroupsResponse)
        assert kafka._do(handlers)
        with kafka.fault("ListGroups", observe=True):
            assert not kafka._do(handlers)
        assert kafka._do(handlers)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "needs one of"),
        ({"drop": True, "disconnect": True}, "only one of"),
        ({"error": "NO_SUCH_ERROR"}, "no error 'NO_SUCH_ERROR'"),
    ],
    ids=["nothing", "two", "unknown"],
)
def test_what_cannot_be_meant_is_refused(
    kafka: Kafka, parts: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message), kafka.fault("Heartbeat", **parts):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("part", ["dropped", "hold", "hits"])
def test_a_fault_has_no_parts_but_those_it_is_documented_with(kafka: Kafka, part: str) -> None:
    with pytest.raises(TypeError, match=rf"a fault has no {part}; .*drop"):
        kafka.fault("Heartbeat", **{part: True})  # type: ignore[arg-type]


def test_an_api_that_there_is_not_is_told_with_those_that_there_are(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match=r"no request 'HeartBeat'.*Heartbeat"):
        kafka.fault("HeartBeat", drop=True).__enter__()


def test_an_error_under_another_librarys_name_is_told_with_kafkas(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match=r"'NOT_LEADER_FOR_PARTITION'; .* NOT_LEADER_OR_FOLLOWER"):
        kafka.fault("Produce", error="NOT_LEADER_FOR_PARTITION")


def test_a_fault_that_is_never_entered_warns(kafka: Kafka) -> None:
    with pytest.warns(RuntimeWarning, match="a fault of Heartbeat was never entered"):
        kafka.fault("Heartbeat", drop=True)
    with pytest.warns(RuntimeWarning, match="a fault of JoinGroup was never entered"):
        kafka.group("billing").hold_join()


def test_a_wait_for_hits_says_how_many_there_were(kafka: Kafka) -> None:
    with (
        kafka.fault("Heartbeat", observe=True) as fault,
        pytest.raises(TimeoutError, match="0 of 1 Heartbeat requests"),
    ):
        fault.wait(timeout=0.01)
