"""Causes of a consumer group's rebalances, in the words of the history: which topics, which member,
and how it went.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.events import CauseAdded, Event, RebalanceAvoided, RebalanceStarted
from kohort.groups.history.facts import Cause
from kohort.groups.history.model import TriggerRecord
from kohort.groups.history.names import MemberFate
from kohort.groups.history.triggers import trigger_record
from kohort.groups.history.wording import cause_text
from kohort.groups.reasons import state_reason
from kohort.groups.refusals import AGAIN_MS
from kohort.groups.requests import JoinRequest, LeaveEntry, Now, SyncRequest
from kohort.groups.steps import at_once
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.chronicle import owning
from tests.support.groups.consumer_group import (
    INTERVAL_MS,
    REVOCATION_MS,
    SESSION_MS,
    Client,
    ConsumerGroup,
    beat,
)


class World(ConsumerGroup):
    """A group whose causes are kept, with the topics t of 4 partitions and u of 2."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[TriggerRecord] = []
        self.topics.change("t", 4)
        self.topics.change("u", 2)

    def observe(self, event: Event) -> None:
        super().observe(event)
        if isinstance(event, RebalanceStarted | CauseAdded | RebalanceAvoided):
            self.causes.append(trigger_record(Cause(event.trigger, self.now)))

    def settle(self, *clients: Client) -> None:
        """Let the members reach their target, and forget what has happened."""
        for client in clients * 3:
            self.resolve()
            beat(self, client)
            self.pass_time(INTERVAL_MS)
        assert self.data is not None
        assert self.data.state == "Stable"
        self.causes.clear()
        self.rebalances.clear()

    @property
    def consumers(self) -> ConsumerMembership:
        membership = self.group.membership
        assert isinstance(membership, ConsumerMembership)
        return membership

    def resolve(self) -> None:
        if self.group.membership is not None and self.consumers.needs_resolution(self.now.ms):
            at_once(self.consumers.resolve(lambda _: True, self.now))
            self.run()

    def join_classic(self, member_id: str, instance_id: str | None = None) -> None:
        request = JoinRequest(
            member_id, instance_id, "old", "", SESSION_MS, REVOCATION_MS, "consumer", owning()
        )
        at_once(self.consumers.join(request, "ticket", self.now))
        self.run()
        if self.data is not None:
            epoch = self.data.members[member_id].epoch
            self.consumers.sync(SyncRequest(member_id, None, epoch), "ticket", self.now)
            self.run()

    def text(self) -> str:
        """The only cause since the group was Stable."""
        (cause,) = self.causes
        return cause_text(cause)


def world_of(*clients: Client) -> World:
    world = World()
    for client in clients:
        beat(world, client)
        world.pass_time(INTERVAL_MS)
    world.settle(*clients)
    return world


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("t", 2)], "t grew from 4 to 6 partitions"),
        ([("t", 0)], "t was deleted"),
        ([("v", 1)], "v was created with 1 partition"),
        ([("u", 0), ("u", 3)], "u was deleted and created again with 3 partitions"),
        ([("t", 1), ("u", 0)], "t grew from 4 to 5 partitions, u was deleted"),
    ],
)
def test_topics_that_changed_are_named_and_no_others(
    changes: list[tuple[str, int]], said: str
) -> None:
    client = Client("a", None, ("t", "u", "v"))
    world = world_of(client)
    for change in changes:
        world.topics.change(*change)
    beat(world, client)
    assert world.text() == f"topics of the group have changed: {said}"


def test_after_a_restart_the_topics_are_known_again_when_they_have_been_compared() -> None:
    client = Client("a", None, ("t",))
    world = world_of(client)
    world.restart()
    beat(world, client)
    world.topics.change("t", 1)
    beat(world, client)
    assert world.text().endswith("t grew from 4 to 5 partitions")


def test_a_new_expression_is_that_of_its_member_and_later_its_new_topics_are_named() -> None:
    world = World()
    client = Client("a", None, (), regex="[tv].*")
    beat(world, client)
    world.resolve()
    assert world.text() == "member a subscribed to the regular expression [tv].*, which matches t"
    world.settle(client)
    world.topics.change("v1", 1)
    world.pass_time(10_000)
    world.resolve()
    assert world.text().endswith(": [tv].* also matches v1")
    world.settle(client)
    world.topics.change("v1", 0)
    for _ in range(2):
        beat(world, client)
    world.causes.clear()
    world.pass_time(10_000)
    world.resolve()
    assert world.text().endswith(": [tv].* no longer matches v1")


def test_a_changed_subscription_is_described_by_its_changes() -> None:
    client, other = Client("a", None, ("t", "v")), Client("b", None, ("t",))
    world = world_of(client, other)
    world.topics.change("x", 1)
    request = HeartbeatRequest("a", client.epoch, topic_names=("u", "t"), server_assignor="range")
    client.take(world.heartbeat(request))
    assert world.text() == (
        "member a changed its subscription: added u, removed v,"
        " and changed the group's assignor from uniform to range"
    )
    world.settle(client, other)
    client.take(world.heartbeat(HeartbeatRequest("a", client.epoch, topic_regex="x|w")))
    world.resolve()
    assert world.text().startswith("member a subscribed to the regular expression x|w")
    world.settle(client, other)
    # The topics of its expression were forgotten, and not deleted, while another topic appeared.
    world.topics.change("w", 1)
    client.take(world.heartbeat(HeartbeatRequest("a", client.epoch, topic_regex="[w]")))
    assert world.text() == (
        "member a changed its subscription: removed the regular expression x|w,"
        " added the regular expression [w]"
    )
    for _ in range(2):  # Until the new expression is resolved.
        world.settle(client, other)
    client.take(world.heartbeat(HeartbeatRequest("a", client.epoch, topic_regex="")))
    assert world.text() == "member a changed its subscription: removed the regular expression [w]"


def test_what_a_replaced_expression_matched_is_not_taken_for_deleted() -> None:
    client = Client("a", None, ("t",), regex="u")
    world = World()
    beat(world, client)
    world.settle(client)
    client.take(world.heartbeat(HeartbeatRequest("a", client.epoch, topic_regex="v")))
    world.topics.change("t", 1)
    beat(world, client)
    assert world.text().endswith(": t grew from 4 to 5 partitions")


def test_the_text_of_a_consumer_that_leaves_is_kept() -> None:
    world = world_of(Client("a", None, ("t",)), Client("b", None, ("t",)))
    reason = state_reason(JoinReason.MEMBERSHIP_LOST, "max.poll.interval.ms exceeded")
    world.heartbeat(HeartbeatRequest("b", -1, reason=reason))
    assert world.causes[0].reason_text == "max.poll.interval.ms exceeded"


@pytest.mark.parametrize("member_id", ["s2", "s1"])
def test_a_static_member_that_returns_says_under_which_id_and_whether_it_reads_the_same(
    member_id: str,
) -> None:
    client, static = Client("a", None, ("t",)), Client("s1", "s", ("t",))
    world = world_of(client, static)
    who = f"member {member_id} (static id s) came back under"
    id_text = "its old member id" if member_id == "s1" else "a new member id"
    for names, said in ((("t",), ""), (("u",), ", with another subscription")):
        beat(world, static)
        world.pass_time(4_000)
        world.heartbeat(HeartbeatRequest(static.member_id, -2, "s"))
        world.pass_time(3_000)
        static = Client(member_id, "s", names)
        beat(world, static)
        assert world.text() == f"{who} {id_text}{said}, 7 s after it was last heard of"
        world.settle(client, static)
        who, id_text = f"member {member_id} (static id s) came back under", "its old member id"


def test_a_static_member_that_stays_away_is_not_said_to_have_missed_a_timeout() -> None:
    world = world_of(Client("a", None, ("t",)), Client("s1", "s", ("t",)))
    world.heartbeat(HeartbeatRequest("s1", -2, "s"))
    world.pass_time(SESSION_MS)
    assert cause_text(world.causes[-1]).endswith(
        " left for a restart and did not return within its session timeout of 45 s"
    )


@dataclass
class Connection:
    is_open: bool


@pytest.mark.parametrize("is_open", [True, False])
def test_the_connection_of_a_silent_consumer_shows_whether_its_process_has_ended(
    is_open: bool,
) -> None:
    client, silent = Client("a", None, ("t",)), Client("b", None, ("t",))
    world = world_of(client, silent)
    world.heartbeat(HeartbeatRequest("b", silent.epoch, connection=Connection(is_open)))
    for _ in range(SESSION_MS // INTERVAL_MS):
        beat(world, client)
        world.pass_time(INTERVAL_MS)

    assert world.fold.open is not None
    assert world.record_of(world.fold.open).trigger.still_connected is is_open


def test_a_process_that_lost_its_membership_by_a_pause_is_recognized_when_it_joins_again() -> None:
    client, paused = Client("a", None, ("t",)), Client("b", None, ("t",))
    world = world_of(client, paused)
    beat(world, paused)
    for _ in range(50):
        beat(world, client)
        world.pass_time(INTERVAL_MS)
    world.causes.clear()
    for _ in range(2):  # The first heartbeat is answered UNKNOWN_MEMBER_ID.
        beat(world, paused)
    assert world.text() == "member b came back after 50 s of silence, the same process"

    world.heartbeat(HeartbeatRequest("b", -1))
    world.causes.clear()
    beat(world, Client("b", None, ("t",)))
    assert world.text() == "member b joined"


def test_a_client_id_that_a_random_member_id_begins_with_by_chance_is_named() -> None:
    world = world_of(Client("a", None, ("t",)))
    beat(world, Client("cR9zt62", None, ("t",), client_id="c"))
    assert world.text() == "member cR9zt62 (client.id c) joined"


def mixed(*consumers: Client) -> World:
    world = world_of(*consumers)
    world.join_classic("old")
    world.pass_time(INTERVAL_MS)
    for client in consumers * 3:
        beat(world, client)
    world.causes.clear()
    return world


def leave(world: World) -> None:
    world.heartbeat(HeartbeatRequest("a", -1, reason=state_reason(0, "closed")))


def remove(world: World) -> None:
    entries = [LeaveEntry("a", None, "by hand")]
    at_once(world.consumers.leave_steps(entries, "ticket", world.now))
    world.run()


def fall_silent(world: World) -> None:
    world.pass_time(SESSION_MS - 2_000)
    epoch = world.consumers.data.members["old"].epoch
    world.consumers.heartbeat_of_classic("old", None, epoch, world.now.ms)
    world.pass_time(2_000)


@pytest.mark.parametrize(
    ("act", "how", "text"),
    [
        (leave, "left", ', saying "closed"'),
        (remove, "was removed by an administrator", ', saying "by hand"'),
        (fall_silent, "missed its session timeout of 45 s", ""),
    ],
)
def test_how_the_last_consumer_went_is_said_of_a_downgrade(
    act: Callable[[World], None], how: str, text: str
) -> None:
    world = mixed(Client("a", None, ("t",)))
    act(world)
    assert world.data is None
    assert cause_text(world.causes[-1]) == (
        f"its last consumer, member a, {how}, which made it a classic group{text}"
    )
    assert world.fold.open is not None
    gone = {m.member_id: m.fate for m in world.record_of(world.fold.open).members}
    assert "a" in gone
    assert gone["a"] is not MemberFate.KEPT


def test_a_static_member_that_returns_as_a_consumer_upgrades_the_group() -> None:
    static = Client("s1", "s", ("t",))
    world = world_of(static)
    world.heartbeat(HeartbeatRequest("s1", -2, "s"))
    world.join_classic("", "s")
    assert world.data is None
    assert world.text() == (
        "member new (static id s) came back under a new member id, 1 s after it was last heard of"
    )
    world.causes.clear()
    beat(world, Client("s2", "s", ("t",)))
    assert world.text() == "member s2 (static id s) joined, which made it a consumer group"


def test_a_forced_rebalance_is_avoided_because_one_is_in_progress() -> None:
    client, other = Client("a", None, ("t",)), Client("b", None, ("t",))
    world = world_of(client, other)
    world.heartbeat(HeartbeatRequest("b", -1))
    world.pass_time(1)
    world.causes.clear()
    reason = state_reason(JoinReason.ENFORCED, None)
    world.heartbeat(HeartbeatRequest("a", client.epoch, reason=reason))
    assert world.text() == (
        "member a enforced a rebalance, while another was in progress, stating ENFORCED"
    )


def refused(world: World, client: Client) -> str:
    """The text of the only refusal of `client`, which tries twice."""
    before = len(world.causes)
    for _ in range(2):
        assert world.heartbeat(client.request(states_owned=True)).error
    (cause,) = world.causes[before:]
    return cause_text(cause)


def test_a_client_that_takes_a_living_members_static_id_is_told_once() -> None:
    world = World()
    world.settle(Client("old", "s", ("t",)))
    text = refused(world, Client("new", "s", ("t",)))
    assert "refused (UNRELEASED_INSTANCE_ID)" in text
    assert "old" in text


def test_a_member_whose_static_id_another_has_by_now_is_told() -> None:
    world = World()
    old, new = Client("old", "s", ("t",)), Client("new", "s", ("t",))
    world.settle(old)
    leave = old.request(states_owned=False)._replace(epoch=-2)
    assert not world.heartbeat(leave).error
    world.settle(new)
    # A process that is told to stop says so once; one that goes on is a second one.
    assert world.heartbeat(leave).error
    assert not world.causes
    assert "refused (FENCED_INSTANCE_ID)" in refused(world, Client("old", "s", ("t",), epoch=1))


def test_a_client_that_a_full_group_has_no_room_for_is_told() -> None:
    world = World()
    size_max = world.settings.max_size
    world.settle(*(Client(f"m{number}", None, ("t",)) for number in range(size_max)))
    text = refused(world, Client("one-more", None, ("t",)))
    assert "refused (GROUP_MAX_SIZE_REACHED)" in text
    assert "group.consumer.max.size" in text
    request = JoinRequest("c", None, "old", "", SESSION_MS, REVOCATION_MS, "consumer", owning())
    at_once(world.consumers.join(request, "ticket", world.now))
    world.run()
    assert "group.consumer.max.size" in cause_text(world.causes[-1])


def test_a_client_with_an_invalid_expression_is_told_with_the_expression() -> None:
    world = World()
    world.settle(Client("m", None, ("t",)))
    text = refused(world, Client("n", None, (), regex="t["))
    assert "refused (INVALID_REGULAR_EXPRESSION)" in text
    assert "t[" in text


def test_a_refused_client_has_the_same_text_with_each_attempt() -> None:
    world = World()
    world.settle(Client("old", "s", ("t",)))
    texts = set()
    for member_id in ("n1", "n2"):
        texts.add(refused(world, Client(member_id, "s", ("t",), client_id="c")))
        world.now = Now(world.now.ms + AGAIN_MS, world.now.wall_ms)
    (text,) = texts
    assert "client c (static id s" in text
