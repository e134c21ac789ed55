"""Every request in every state: the matrix of answers, walked row by row.

What an absent group answers is the coordinator's part and tested there.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kohort.groups.requests import JoinResult, LeaveEntry, Now
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import Scenario, Ticket, subscription

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
OTHER_PROTOCOLS = (("range", subscription("t", "u")),)


class World(NamedTuple):
    """A group in some state, with a dynamic leader, a dynamic and a static follower if it has
    members at all, and a pending id.
    """

    scenario: Scenario
    leader: str
    follower: str
    static: str
    pending: str


def a_world(state: str) -> World:
    s = Scenario()
    if state in {"Empty", "Dead"}:
        pending = s.new_id(session_timeout_ms=1_000_000)
        if state == "Dead":
            s.step(lambda: s.group.unload(ErrorCode.NOT_COORDINATOR, s.now))
        return World(s, "x-1", "x-2", "x-3", pending)
    leader, _ = s.join_dynamic()
    follower, _ = s.join_dynamic()
    static = s.join(instance="i")
    s.advance(6_000)
    members = [leader, follower, static.answer.member_id]
    if state != "CompletingRebalance":
        s.settle(members)
    if state == "PreparingRebalance":
        s.leave(s.join_dynamic()[0])
        assert s.classic.roster.parked_joins == 0
    pending = s.new_id(session_timeout_ms=1_000_000)
    assert s.state == state
    return World(s, leader, follower, static.answer.member_id, pending)


@pytest.fixture(params=STATES)
def world(request: pytest.FixtureRequest) -> World:
    return a_world(request.param)


def test_join_without_identity_gets_an_id_and_changes_nothing(world: World) -> None:
    s = world.scenario
    generation, state = s.classic.data.generation, s.state
    answer = s.join().answer
    if state == "Dead":
        assert answer == JoinResult(UNAVAILABLE)
    else:
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id not in {"", world.pending}
    assert (s.classic.data.generation, s.state) == (generation, state)
    assert answer.member_id not in s.classic.roster


NEWCOMERS: dict[str, Callable[[World], Ticket]] = {
    "v0-3 without an id": lambda w: w.scenario.join(requires_known_id=False),
    "a pending id": lambda w: w.scenario.join(w.pending),
    "a new static instance": lambda w: w.scenario.join(instance="new"),
}


@pytest.mark.parametrize("newcomer", NEWCOMERS)
def test_join_of_somebody_new_parks_and_rebalances(world: World, newcomer: str) -> None:
    s = world.scenario
    before = s.state
    ticket = NEWCOMERS[newcomer](world)
    if before == "Dead":
        assert ticket.answer.error is UNAVAILABLE
        return
    assert ticket.is_parked
    assert s.state == "PreparingRebalance"
    assert (s.classic.data.initial is not None) == (before == "Empty")


def test_join_of_a_replacement(world: World) -> None:
    s = world.scenario
    if s.state == "Empty":
        assert s.classic.roster.holder_of("i") is None
        return
    before = s.state
    ticket = s.join(instance="i")
    if before == "Dead":
        assert ticket.answer.error is UNAVAILABLE
    elif before == "Stable":
        assert ticket.answer.error is NONE
        assert ticket.answer.generation == s.classic.data.generation
        assert s.state == "Stable"
    else:
        assert ticket.is_parked
        assert s.state == "PreparingRebalance"
        assert world.static not in s.classic.roster


@pytest.mark.parametrize("who", ["leader", "follower", "static"])
def test_join_of_a_member_with_the_same_protocols(world: World, who: str) -> None:
    s = world.scenario
    member_id = getattr(world, who)
    before, generation = s.state, s.classic.data.generation
    ticket = s.join(member_id, instance="i" if who == "static" else None)
    if before == "Empty":
        assert ticket.answer == JoinResult(UNKNOWN, member_id)
    elif before == "Dead":
        assert ticket.answer.error is UNAVAILABLE
    elif before == "PreparingRebalance" or (before == "Stable" and who == "leader"):
        assert ticket.is_parked
        assert s.state == "PreparingRebalance"
    else:
        answer = ticket.answer
        assert (answer.error, answer.generation, answer.leader) == (NONE, generation, world.leader)
        assert bool(answer.members) == (who == "leader")
        assert not answer.skip_assignment
        assert s.state == before


@pytest.mark.parametrize("who", ["leader", "follower", "static"])
def test_join_of_a_member_with_changed_protocols(world: World, who: str) -> None:
    s = world.scenario
    member_id = getattr(world, who)
    before = s.state
    ticket = s.join(member_id, instance="i" if who == "static" else None, protocols=OTHER_PROTOCOLS)
    if before == "Empty":
        assert ticket.answer == JoinResult(UNKNOWN, member_id)
    elif before == "Dead":
        assert ticket.answer.error is UNAVAILABLE
    else:
        assert ticket.is_parked
        assert s.state == "PreparingRebalance"
        member = s.classic.roster.get(member_id)
        assert member is not None
        assert member.protocols == OTHER_PROTOCOLS


def test_sync_of_a_follower(world: World) -> None:
    s = world.scenario
    ticket = s.sync(world.follower)
    if s.state == "CompletingRebalance":
        assert ticket.is_parked
        assert s.state == "CompletingRebalance"
        return
    expected = {
        "Empty": UNKNOWN,
        "PreparingRebalance": REBALANCING,
        "Stable": NONE,
        "Dead": UNAVAILABLE,
    }
    assert ticket.answer.error is expected[s.state]
    stored = f"of {world.follower}".encode() if s.state == "Stable" else b""
    assert ticket.answer.assignment == stored


def test_sync_of_the_leader(world: World) -> None:
    s = world.scenario
    before = s.state
    ticket = s.sync(world.leader, assignments={world.leader: b"new"})
    if before == "CompletingRebalance":
        assert ticket.answer.assignment == b"new"
        assert s.state == "Stable"
    elif before == "Stable":
        assert ticket.answer.assignment == f"of {world.leader}".encode()
    else:
        assert ticket.answer.error is not NONE
        assert s.state == before


def test_heartbeat(world: World) -> None:
    s = world.scenario
    expected = {
        "Empty": UNKNOWN,
        "PreparingRebalance": REBALANCING,
        "CompletingRebalance": NONE,
        "Stable": NONE,
        "Dead": UNAVAILABLE,
    }
    s.ms += 1_000
    assert s.heartbeat(world.follower) is expected[s.state]
    member = s.classic.roster.get(world.follower)
    if member is not None and s.state != "Dead":
        assert member.session_deadline_ms == s.ms + 10_000


def test_leave(world: World) -> None:
    s = world.scenario
    before = s.state
    result = s.leave(world.follower)
    if before == "Dead":
        assert result.error is UNAVAILABLE
    elif before == "Empty":
        assert result.entries == (UNKNOWN,)
    else:
        assert result.entries == (NONE,)
        assert s.state == "PreparingRebalance"
        assert world.follower not in s.classic.roster


def test_leave_of_a_pending_id(world: World) -> None:
    s = world.scenario
    before = s.state
    result = s.leave(world.pending)
    if before == "Dead":
        assert result.error is UNAVAILABLE
        return
    assert result.entries == (NONE,)
    assert not s.classic.roster.pending
    assert s.state == before


def test_commit_of_a_member(world: World) -> None:
    s = world.scenario
    expected = {
        "Empty": UNKNOWN,
        "PreparingRebalance": NONE,
        "CompletingRebalance": REBALANCING,
        "Stable": NONE,
        "Dead": UNAVAILABLE,
    }
    s.ms += 1_000
    error = s.commit_error(member_id=world.follower, generation=s.classic.data.generation)
    assert error is expected[s.state]
    assert (s.offset() == 42) == (error is NONE)
    member = s.classic.roster.get(world.follower)
    if error is NONE and member is not None:
        assert member.session_deadline_ms == s.ms + 10_000


def test_commit_from_outside(world: World) -> None:
    s = world.scenario
    expected = {"Empty": NONE, "Dead": UNAVAILABLE}
    assert s.commit_error() is expected.get(s.state, UNKNOWN)


def test_what_was_committed_is_found_except_in_a_dead_group(world: World) -> None:
    s = world.scenario
    if s.state == "CompletingRebalance":
        s.settle([world.leader, world.follower, world.static])
    if s.state == "Empty":
        s.commit()
    elif s.state != "Dead":
        s.commit(member_id=world.follower, generation=s.classic.data.generation)
    assert s.offset() == (None if s.state == "Dead" else 42)


def test_offset_delete(world: World) -> None:
    s = world.scenario
    result = s.delete_offsets(("t", 0), ("other", 0))
    if s.state == "Dead":
        assert result.error is ErrorCode.GROUP_ID_NOT_FOUND
    elif s.state == "Empty":
        assert result.partitions == (NONE, NONE)
    else:
        assert result.partitions == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE)


def test_delete_group(world: World) -> None:
    s = world.scenario
    before = s.state
    expected = {"Empty": NONE, "Dead": ErrorCode.GROUP_ID_NOT_FOUND}
    assert s.delete() is expected.get(before, ErrorCode.NON_EMPTY_GROUP)
    assert s.state == ("Dead" if before == "Empty" else before)


WITH_GENERATION: dict[str, Callable[[Scenario, str, int], ErrorCode]] = {
    "sync": lambda s, member_id, generation: s.sync(member_id, generation).answer.error,
    "heartbeat": lambda s, member_id, generation: s.heartbeat(member_id, generation),
    "commit": lambda s, member_id, generation: s.commit_error(
        member_id=member_id, generation=generation
    ),
}


@pytest.mark.parametrize("request_name", WITH_GENERATION)
@pytest.mark.parametrize("offset", [-1, 1])
def test_a_wrong_generation_is_told_after_membership_and_before_the_state(
    world: World, request_name: str, offset: int
) -> None:
    s = world.scenario
    ask = WITH_GENERATION[request_name]
    wrong = s.classic.data.generation + offset
    expected = {"Empty": UNKNOWN, "Dead": UNAVAILABLE}.get(s.state, ILLEGAL)
    if request_name == "commit" and s.state == "Empty" and wrong < 0:
        # Generation -1 is a commit from outside, whatever id comes with it.
        expected = NONE
    assert ask(s, world.follower, wrong) is expected
    if s.state != "Dead" and wrong >= 0:
        assert ask(s, "nobody", wrong) is UNKNOWN


FENCING: dict[str, Callable[[Scenario, str, str], ErrorCode]] = {
    "join": lambda s, member_id, instance: s.join(member_id, instance=instance).answer.error,
    "sync": lambda s, member_id, instance: s.sync(member_id, instance=instance).answer.error,
    "heartbeat": lambda s, member_id, instance: s.heartbeat(member_id, instance=instance),
    "leave": lambda s, member_id, instance: s.leave(LeaveEntry(member_id, instance)).entries[0],
    "commit": lambda s, member_id, instance: s.commit_error(
        member_id=member_id, generation=s.classic.data.generation, instance=instance
    ),
}


@pytest.mark.parametrize("request_name", FENCING)
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
class TestFencingComesFirst:
    def test_an_instance_no_one_holds_is_unknown(self, state: str, request_name: str) -> None:
        world = a_world(state)
        assert FENCING[request_name](world.scenario, world.follower, "nobody's") is UNKNOWN

    def test_an_instance_that_another_member_holds_fences(
        self, state: str, request_name: str
    ) -> None:
        world = a_world(state)
        assert FENCING[request_name](world.scenario, world.follower, "i") is FENCED

    def test_even_an_unknown_member_is_fenced(self, state: str, request_name: str) -> None:
        world = a_world(state)
        assert FENCING[request_name](world.scenario, "stranger", "i") is FENCED


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_static_member_may_leave_its_instance_out(state: str) -> None:
    world = a_world(state)
    s = world.scenario
    assert s.heartbeat(world.static) is not UNKNOWN
    error = s.commit_error(member_id=world.static, generation=s.classic.data.generation)
    assert error is not UNKNOWN


def test_a_heartbeat_is_answered_while_the_members_join_is_parked() -> None:
    world = a_world("PreparingRebalance")
    s = world.scenario
    ticket = s.join(world.follower)
    assert s.heartbeat(world.follower) is REBALANCING
    assert ticket.is_parked


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_pending_id_is_no_member(state: str) -> None:
    world = a_world(state)
    s = world.scenario
    assert s.heartbeat(world.pending) is UNKNOWN
    assert s.sync(world.pending).answer.error is UNKNOWN
    assert world.pending not in {member.member_id for member in s.group.describe_members()}


def test_deadlines_of_a_dead_group_do_nothing() -> None:
    world = a_world("Dead")
    s = world.scenario
    s.group.on_deadlines(list(s.timers), Now(s.ms + 10_000_000, 0))
    assert s.group.take_effects() == []
