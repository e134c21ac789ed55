"""The record of a consumer group's rebalance: its times are those of heartbeats and appends."""

from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.history.evidence import evidence
from kohort.groups.history.model import MemberTimeline, RebalanceRecord
from kohort.groups.history.names import MemberFate, RebalanceOutcome
from kohort.groups.history.sentence import sentence
from kohort.groups.requests import JoinRequest, SyncRequest
from kohort.groups.steps import at_once
from kohort.groups.views import waiting_json
from tests.support.groups.chronicle import owning
from tests.support.groups.consumer_group import (
    INTERVAL_MS,
    REVOCATION_MS,
    Client,
    ConsumerGroup,
    beat,
)


def group_of(*names: str, partitions: int = 4) -> tuple[ConsumerGroup, list[Client]]:
    """A Stable group of these members, which all read one topic."""
    world = ConsumerGroup()
    world.topics.change("t", partitions)
    clients = [Client(name, None, ("t",)) for name in names]
    for client in clients:
        beat(world, client)
        world.pass_time(INTERVAL_MS)
    for client in clients * 3:
        beat(world, client)
    assert world.data is not None
    assert world.data.state == "Stable"
    world.rebalances.clear()
    return world, clients


def member_of(record: RebalanceRecord, client: Client) -> MemberTimeline:
    return next(member for member in record.members if member.member_id == client.member_id)


def test_a_member_that_joins_gets_partitions_when_another_has_given_them_up() -> None:
    world, (first,) = group_of("a")
    second = Client("b", None, ("t",))
    world.pass_time(100)
    beat(world, second)
    world.pass_time(3_000)
    beat(world, first)
    world.pass_time(500)
    beat(world, first)
    world.pass_time(1_500)
    beat(world, second)

    (record,) = world.rebalances
    assert (record.group_type, record.outcome) == ("consumer", RebalanceOutcome.STABLE)
    assert (record.previous_state, record.previous_generation, record.generation) == (
        "Stable",
        2,
        3,
    )
    times = record.timeline
    assert (times.assigned_ms, times.assigned_by, times.durable_ms) == (0, "at_once", 0)
    assert (times.finished_ms, times.join_phase_ms, times.leader_synced_ms) == (5_000, None, None)
    loser, winner = member_of(record, first), member_of(record, second)
    assert (loser.type, loser.mode, loser.role) == ("consumer", "consumer", None)
    assert (loser.epoch_before, loser.epoch) == (2, 3)
    assert (loser.told_ms, loser.revoked_ms, loser.reached_ms) == (3_000, 3_500, 3_500)
    assert (loser.completed_ms, loser.stopped_ms) == (3_500, 0)
    assert (winner.fate, winner.epoch_before, winner.epoch) == (MemberFate.NEW, None, 3)
    assert (winner.told_ms, winner.revoked_ms, winner.reached_ms) == (0, None, 0)
    assert (winner.completed_ms, winner.stopped_ms) == (5_000, 1_500)
    assert (loser.partitions.kept, loser.partitions.given_up) == (2, winner.partitions.gained)
    assert (record.partitions.kept, record.partitions.moved) == (2, 2)
    assert record.stopped.longest_ms == 1_500
    assert (record.waited_for.phase, record.waited_for.member_ids) == ("tell", ("a",))
    assert record.waited_for.ms == 3_000


def test_a_free_partition_that_nobody_comes_for_is_waited_for() -> None:
    world, (first,) = group_of("a")
    second = Client("b", None, ("t",))
    beat(world, second)
    beat(world, first)
    beat(world, first)
    world.pass_time(4_000)
    beat(world, second)

    (record,) = world.rebalances
    assert (record.waited_for.phase, record.waited_for.member_ids) == ("give", ("b",))
    assert record.waited_for.ms == 4_000


def test_within_the_interval_causes_are_collected_until_a_heartbeat_assigns() -> None:
    world, (first,) = group_of("a")
    for name in ("b", "c"):
        beat(world, Client(name, None, ("t",)))
    world.pass_time(INTERVAL_MS - 1)
    world.timers.clear()  # The timer is late.
    world.pass_time(INTERVAL_MS)
    world.store_ms = 70
    beat(world, first)

    assert world.fold.open is not None
    (superseded,) = world.rebalances
    assert superseded.outcome is RebalanceOutcome.SUPERSEDED
    assert sentence(superseded).startswith("began to rebalance")
    record = world.record_of(world.fold.open)
    assert [cause.member_id for cause in (record.trigger, *record.further_causes)] == ["c"]
    times = record.timeline
    assert (times.assigned_by, times.assigned_ms) == ("heartbeat", 2 * INTERVAL_MS - 1)
    assert times.durable_ms == 2 * INTERVAL_MS - 1 + 70


def test_the_partitions_of_a_member_that_left_stand_still_until_they_are_given() -> None:
    world, (first, second) = group_of("a", "b")
    world.pass_time(INTERVAL_MS)
    world.heartbeat(HeartbeatRequest(second.member_id, -1))
    world.pass_time(2_500)
    beat(world, first)

    (record,) = world.rebalances
    left, heir = member_of(record, second), member_of(record, first)
    assert (left.fate, left.fate_ms, left.type) == (MemberFate.LEFT, 0, "consumer")
    assert (left.told_ms, left.partitions.given_up) == (None, heir.partitions.gained)
    assert (heir.stopped_ms, heir.partitions.kept) == (2_500, 2)
    assert (record.partitions.moved, record.partitions.given_up) == (2, 2)


def test_a_member_that_keeps_what_it_was_asked_for_is_waited_for_again() -> None:
    world, (first,) = group_of("a")
    beat(world, Client("b", None, ("t",)))
    world.pass_time(INTERVAL_MS)
    first.take(world.heartbeat(first.request(states_owned=True)))
    world.pass_time(400)
    beat(world, Client("c", None, ("t",)))
    world.pass_time(600)

    assert world.fold.open is not None
    record = world.record_of(world.fold.open)
    assert member_of(record, first).told_ms == 0
    assert member_of(record, first).partitions.kept == 2
    assert (record.waited_for.phase, record.waited_for.member_ids) == ("revoke", ("a",))
    waiting = world.group.describe_waiting()
    assert waiting is not None
    assert (waiting.phase, waiting.partition_count, waiting.blocked_count) == ("revoke", 2, 1)
    assert [topic for topic, _ in waiting.partitions] == ["t", "t"]
    view = waiting_json(waiting, world.now, with_members=True, may_name=lambda topic: topic != "t")
    assert view is not None
    assert view["partitions"] == []
    world.pass_time(REVOCATION_MS)
    last = world.rebalances[-1]
    assert last.outcome is RebalanceOutcome.SUPERSEDED
    assert member_of(last, first).fate is MemberFate.REBALANCE_TIMEOUT
    assert world.fold.open is not None
    after = world.record_of(world.fold.open)
    assert after.trigger.kind.value == "rebalance_expired"
    assert member_of(after, first).partitions.given_up_count == 4


def test_a_static_member_that_returns_keeps_its_partitions() -> None:
    world, (first,) = group_of("a")
    static = Client("s1", "s", ("t",))
    for client in (static, first, first, static):
        beat(world, client)
    world.pass_time(INTERVAL_MS)
    world.rebalances.clear()
    world.heartbeat(HeartbeatRequest("s1", -2, "s"))
    beat(world, Client("s2", "s", ("t", "u")))
    beat(world, first)

    (record,) = world.rebalances
    returned = next(member for member in record.members if member.member_id == "s2")
    assert (returned.partitions.gained, returned.partitions.given_up) == ((), ())
    assert (returned.partitions.kept, record.partitions.moved) == (2, 0)
    assert (returned.stopped_ms, returned.fate) == (0, MemberFate.KEPT)


def test_the_software_of_members_is_in_the_record_and_changes_no_stored_value() -> None:
    world, (first,) = group_of("a")
    first.is_unsure, first.client_software = True, "librdkafka 2.16.1"
    stored = dict(world.log)
    beat(world, first)
    assert world.log == stored
    second = Client("b", None, ("t",), client_software="unknown unknown")
    for client in (second, first, first, second):
        beat(world, client)
    (record,) = world.rebalances
    assert {
        member.member_id: (member.client_software_name, member.client_software_version)
        for member in record.members
    } == {"a": ("librdkafka", "2.16.1"), "b": ("unknown", "unknown")}


def test_the_sentence_speaks_of_partitions_and_not_of_members_that_stop() -> None:
    world, (first,) = group_of("a")
    second = Client("b", None, ("t",), client_id="app-2")
    for client in (second, first, first):
        beat(world, client)
    world.pass_time(4_000)
    beat(world, second)

    text = sentence(world.rebalances[0])
    assert "1 member got partitions that had no owner for 4 s" in text
    assert "because member b (client.id app-2) joined" in text
    waited = "it waited 4 s for the next heartbeat of member b (client.id app-2),"
    assert f"{waited} to assign free partitions" in text
    assert "stopped" not in "\n".join([text, *evidence(world.rebalances[0])])
    assert "the last member had its partitions 4 s later" in evidence(world.rebalances[0])


def test_a_static_member_that_restarts_meanwhile_is_waited_for_under_its_new_id() -> None:
    world, (first,) = group_of("a")
    for client in (static := Client("s1", "s", ("t",)), first, first, static):
        beat(world, client)
    world.pass_time(INTERVAL_MS)
    world.rebalances.clear()
    world.heartbeat(HeartbeatRequest("s1", -2, "s"))
    second = Client("b", None, ("t",))
    for client in (second, first, first, second):
        beat(world, client)
    waiting = world.group.describe_waiting()
    assert waiting is not None
    assert (waiting.phase, [member.member_id for member in waiting.members]) == ("return", ["s1"])
    world.pass_time(3_000)
    for client in (returned := Client("s2", "s", ("t",)), returned, second):
        beat(world, client)

    (record,) = world.rebalances
    waited = record.waited_for
    assert (waited.phase, waited.member_ids, waited.ms) == ("tell", ("s2",), 3_000)


def running(world: ConsumerGroup) -> RebalanceRecord:
    assert world.fold.open is not None
    return world.record_of(world.fold.open)


def test_a_classic_member_is_waited_for_to_join_again_until_its_rebalance_timeout() -> None:
    world, (first,) = group_of("a")
    membership = world.group.membership
    assert isinstance(membership, ConsumerMembership)
    join = JoinRequest("old", None, "", "", 45_000, REVOCATION_MS, "consumer", owning())
    at_once(membership.join(join, "ticket", world.now))
    world.run()
    epoch = membership.data.members["old"].epoch
    membership.sync(SyncRequest("old", None, epoch), "ticket", world.now)
    world.run()
    second = Client("b", None, ("t",))
    beat(world, second)
    world.pass_time(INTERVAL_MS)
    world.rebalances.clear()
    membership.heartbeat_of_classic("old", None, epoch, world.now.ms)
    world.run()
    until_ms = world.now.ms + REVOCATION_MS
    for client in (first, first, second):
        beat(world, client)
    world.pass_time(2 * INTERVAL_MS)

    waiting = world.group.describe_waiting()
    assert waiting is not None
    assert (waiting.phase, [member.member_id for member in waiting.members]) == ("join", ["old"])
    assert waiting.until_ms == until_ms
    assert running(world).waited_for.phase == "join"
    world.pass_time(REVOCATION_MS - 2 * INTERVAL_MS)
    waited = world.rebalances[-1].waited_for
    assert (waited.phase, waited.member_ids, waited.ms) == ("join", ("old",), REVOCATION_MS)


def test_a_target_after_the_interval_did_not_wait_for_it() -> None:
    world, (_, second) = group_of("a", "b")
    world.pass_time(INTERVAL_MS)
    world.heartbeat(HeartbeatRequest(second.member_id, -1))
    world.pass_time(1)
    record = running(world)
    assert record.timeline.assigned_by == "at_once"
    assert record.waited_for.phase != "assign"
