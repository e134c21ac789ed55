"""Groups as tests see, wait for and disturb them."""

import pytest
from aiokafka import AIOKafkaConsumer

from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.events import TriggerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import HeartbeatRequest, HeartbeatResponse
from kohort.testing import Kafka, kafka_settings
from tests.support.groups.raw_members import RawMember, share
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until


def settled(kafka: Kafka) -> RawMember:
    """The only member of the group "billing", which reads "t"."""
    kafka.create_topic("t", partitions=2)
    member = RawMember(kafka.port, "billing")
    assert not member.arrive().answer().error_code
    assert not member.sync({member.member_id: share("t", 0, 1)}).error_code
    return member


def heartbeat(kafka: Kafka, member: RawMember) -> int:
    request = HeartbeatRequest(
        group_id="billing", generation_id=member.generation, member_id=member.member_id
    )
    with RawClient(kafka.port) as client:
        return client.call(request, 4, HeartbeatResponse).error_code


def kinds(kafka: Kafka) -> list[TriggerKind]:
    return [one.trigger.kind for one in kafka.group("billing").rebalances]


async def test_a_group_is_waited_for_until_it_has_read_everything(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3)
    for _ in range(9):
        kafka.produce("orders", b"x")
    group = kafka.group("billing")
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        client_id="worker-1",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        await group.wait_async(state="Stable", members=1)
        assert group.lag == 9
        (member,) = group.members
        assert (member.client_id, member.partitions) == (
            "worker-1",
            [("orders", 0), ("orders", 1), ("orders", 2)],
        )
        for _ in range(9):
            await consumer.getone()
        await consumer.commit()
        await group.wait_async(lag=0)
    await group.wait_async(state="Empty", members=0)
    assert kinds(kafka) == [TriggerKind.MEMBER_ADDED, TriggerKind.MEMBER_LEFT]


def test_a_wait_in_vain_says_what_holds_instead(kafka: Kafka) -> None:
    settled(kafka)
    with pytest.raises(TimeoutError, match="is Stable with members=1, lag=0 after"):
        kafka.group("billing").wait(members=2, timeout=0.01)
    with pytest.raises(TimeoutError, match="'others' is not there"):
        kafka.group("others").wait(state="Stable", timeout=0.01)


@kafka_settings({"group.initial.rebalance.delay.ms": 60_000})
def test_a_group_whose_members_are_joining_yet_has_not_read_everything(kafka: Kafka) -> None:
    kafka.produce("t", b"x")
    joining = RawMember(kafka.port, "billing").arrive()
    kafka.group("billing").wait(state="PreparingRebalance")
    with pytest.raises(TimeoutError, match="lag=unknown after"):
        kafka.group("billing").wait(lag=0, timeout=0.01)
    kafka.stop()
    assert joining.answer().error_code


def test_a_group_that_is_not_there_is_empty_to_look_at(kafka: Kafka) -> None:
    group = kafka.group("others")
    assert (group.state, group.members, group.lag, group.rebalances) == (None, [], 0, [])


def test_an_expired_member_is_gone_as_if_it_had_been_silent(kafka: Kafka) -> None:
    member = settled(kafka)
    assert kafka.group("billing").expire(client_id="test") == [member.member_id]
    assert heartbeat(kafka, member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert kinds(kafka) == [TriggerKind.MEMBER_ADDED, TriggerKind.SESSION_EXPIRED]


def test_a_removed_member_is_gone_by_an_administrators_hand(kafka: Kafka) -> None:
    member = settled(kafka)
    assert kafka.group("billing").remove(member_id=member.member_id) == [member.member_id]
    assert heartbeat(kafka, member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert kinds(kafka) == [TriggerKind.MEMBER_ADDED, TriggerKind.REMOVED_BY_ADMIN]


def test_an_enforced_rebalance_is_told_to_the_members(kafka: Kafka) -> None:
    member = settled(kafka)
    kafka.group("billing").enforce()
    assert heartbeat(kafka, member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert kafka.group("billing").state == "PreparingRebalance"
    assert kinds(kafka) == [TriggerKind.MEMBER_ADDED, TriggerKind.FORCED_BY_REASON]
    assert "the test" in "\n".join(kafka.group("billing").why)


def test_a_held_join_is_waited_for_until_the_context_ends(kafka: Kafka) -> None:
    member = settled(kafka)
    group = kafka.group("billing")
    group.enforce()
    with group.hold_join(client_id="test") as held:
        joining = member.join()
        held.wait()
        assert group.state == "PreparingRebalance"
        assert any("to join again" in line for line in group.why)
    assert not joining.answer().error_code
    assert member.generation == 2


def test_who_is_not_there_cannot_be_disturbed(kafka: Kafka) -> None:
    group = kafka.group("billing")
    for disturb in (group.expire, group.remove, group.enforce):
        with pytest.raises(LookupError, match="no group 'billing'"):
            disturb()
    settled(kafka)
    with pytest.raises(LookupError, match="no member with client_id=other"):
        group.expire(client_id="other")
    with pytest.raises(LookupError, match="no member with client_id=test, instance_id=other"):
        group.expire(client_id="test", instance_id="other")


def test_a_member_that_waits_in_a_rebalance_has_no_session_to_end(kafka: Kafka) -> None:
    member = settled(kafka)
    group = kafka.group("billing")
    newcomer = RawMember(kafka.port, "billing")
    arriving = newcomer.arrive()
    group.wait(members=2)
    assert not member.join().answer().error_code
    assert not arriving.answer().error_code
    group.enforce()
    waiting = member.join()
    wait_until(lambda: parked_joins(kafka) == 1, "the join waits for the other member")
    with pytest.raises(ValueError, match="waits for a response"):
        group.expire(member_id=member.member_id)
    assert not newcomer.join().answer().error_code
    assert not waiting.answer().error_code


def parked_joins(kafka: Kafka) -> int:
    group = kafka._do(
        lambda: kafka._kit.broker.services.groups.host.membership("billing", ClassicMembership)
    )
    assert group is not None
    return group.roster.parked_joins


def test_groups_and_their_history_survive_a_restart(kafka: Kafka) -> None:
    member = settled(kafka)
    kafka.restart()
    kafka.group("billing").wait(state="Stable", members=1)
    assert heartbeat(kafka, member) == ErrorCode.NONE
    assert kinds(kafka)[0] is TriggerKind.MEMBER_ADDED
