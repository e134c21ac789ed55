"""Members come, go and change their minds, with the clients of all times, as at Kafka."""

import pytest

from tests.interop.same_answers.ages import AGES, NEWEST, Age, of_ages
from tests.interop.same_answers.groups import Group, Member, subscription
from tests.interop.same_answers.pair import Pair
from tests.support import messages as m


@pytest.fixture(params=of_ages(AGES))
def group(pair: Pair, request: pytest.FixtureRequest) -> Group:
    return Group(pair, request.param)


def other_offer(member: Member) -> dict[str, bytes]:
    """The same assignor with other metadata."""
    return {"range": subscription("b", user_data=member.name.encode())}


def test_a_lone_member(group: Group) -> None:
    member = group.member("lone")
    member.joined()
    group.show(member)
    member.sync(assign=[member]).answers()
    group.show(member)
    member.sync().answers()
    member.join().answers()
    group.show(member)
    member.sync(assign=[member]).answers()
    member.leave()
    group.show(member)
    group.list()


def test_three_members_and_one_leaves(group: Group) -> None:
    one, two, three = group.member("one"), group.member("two"), group.member("three")
    group.settle(one, two, three)
    group.show(one, two, three)
    three.leave()
    group.show(one, two, three)
    waiting = one.join()
    assert waiting.is_parked()
    group.show(one, two)
    two.sync().answers()
    two.join().answers()
    waiting.answers()
    group.show(one, two)
    group.assign(one, two)
    group.show(one, two)


def test_the_last_two_leave(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    one.leave()
    two.join().answers()
    group.show(two)
    two.leave()
    group.show(one, two)
    three = group.member("three")
    three.joined()
    group.show(two, three)


def test_a_member_joins_a_settled_group(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.settle(one)
    waiting = two.park()
    group.wait_members(2)
    assert waiting.is_parked()
    group.show(one, two)
    one.sync().answers()
    one.join().answers()
    waiting.answers()
    group.assign(one, two)
    group.show(one, two)


def test_a_member_joins_while_the_assignment_is_awaited(group: Group) -> None:
    one, two, three = group.member("one"), group.member("two"), group.member("three")
    group.gather(one, two)
    sync = two.sync()
    assert sync.is_parked()
    join = three.park()
    sync.answers()
    group.show(one, two)
    group.rejoin(one, two)
    join.answers()
    group.assign(one, two, three)
    group.show(one, two, three)


def test_a_follower_joins_again_with_nothing_new(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    two.join().answers()
    group.show(one, two)
    two.sync().answers()
    group.show(one, two)


def test_the_leader_joins_again_with_nothing_new(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    waiting = one.join()
    assert waiting.is_parked()
    group.show(one, two)
    two.join().answers()
    waiting.answers()
    group.assign(one, two)


def test_members_join_again_while_the_assignment_is_awaited(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.gather(one, two)
    for member in (one, two, one):
        member.join().answers()
    sync = two.sync()
    assert sync.is_parked()
    group.show(one, two)
    one.join().answers()
    one.sync(assign=[one, two]).answers()
    sync.answers()
    group.show(one, two)


@pytest.mark.parametrize("who", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("settled", [True, False], ids=["stable", "completing"])
def test_a_member_changes_its_mind(group: Group, who: int, settled: bool) -> None:
    members = one, two = group.member("one"), group.member("two")
    group.gather(one, two)
    sync = None
    if settled:
        group.assign(one, two)
    else:
        sync = two.sync() if two is not members[who] else None
        assert sync is None or sync.is_parked()
    members[who].protocols = other_offer(members[who])
    waiting = members[who].join()
    assert waiting.is_parked()
    if sync is not None:
        sync.answers()
    group.show(one, two)
    members[1 - who].join().answers()
    waiting.answers()
    group.assign(one, two)
    group.describe()


def test_another_order_is_another_mind(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    both = {"range": subscription("a"), "sticky": subscription("a")}
    one.protocols = two.protocols = both
    group.settle(one, two)
    two.protocols = dict(reversed(both.items()))
    waiting = two.join()
    assert waiting.is_parked()
    one.protocols = two.protocols
    one.join().answers()
    waiting.answers()
    group.assign(one, two)
    group.describe()


def test_a_member_that_waits_changes_its_mind_in_time(group: Group) -> None:
    one, two, three = group.member("one"), group.member("two"), group.member("three")
    group.settle(one, two)
    waiting = three.park()
    group.wait_members(3)
    two.protocols = other_offer(two)
    waiting_too = two.join()
    assert waiting_too.is_parked()
    one.join().answers()
    waiting.answers()
    waiting_too.answers()


def test_assignments_that_are_not_quite_right(group: Group) -> None:
    one, two, three = group.member("one"), group.member("two"), group.member("three")
    stranger = group.member("stranger")
    stranger.id = "nobody"
    group.gather(one, two, three)
    waiting = [two.sync(assign=[one, two]), three.sync()]
    assert all(pending.is_parked() for pending in waiting)
    one.sync(assign=[two, two, stranger]).answers()
    for pending in waiting:
        pending.answers()
    one.sync(assign=[one, two, three]).answers()
    group.show(one, two, three)


def test_an_empty_group_begins_again_under_another_type(group: Group) -> None:
    one, two = group.member("one"), group.member("two", type="connect")
    two.protocols = {"compatible": b"\x00\x01"}
    group.settle(one)
    one.leave()
    group.show(one)
    group.list()
    group.settle(two)
    group.show(two)
    group.list()
    two.leave()
    group.list()


def test_a_deleted_group_begins_at_the_beginning(group: Group) -> None:
    one = group.member("one")
    group.settle(one)
    group.pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    one.leave()
    group.pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    group.show(one)
    group.list()
    two = group.member("two")
    group.settle(two)
    group.show(one, two)


def test_a_member_that_disconnects_is_still_waited_for(group: Group) -> None:
    one, two = group.member("one"), group.member("two")
    group.settle(one)
    waiting = two.park()
    group.wait_members(2)
    waiting.line.close()
    group.show(one)
    pending = one.join()
    answers = pending.answers()
    group.show(one)
    assert answers.kafka.generation_id == 2


def test_a_full_group(group: Group) -> None:
    members = [group.member(name) for name in ("one", "two", "three", "four")]
    group.gather(*members)
    late = group.member("late")
    late.join().answers()
    group.describe()
    group.assign(*members)
    late.join().answers()
    members[1].join().answers()
    group.show(*members)
    members[3].leave()
    waiting = late.park()
    group.wait_members(4)
    assert waiting.is_parked()
    group.rejoin(*members[:3])
    waiting.answers()
    group.show(*members, late)


@pytest.mark.parametrize("age", of_ages([age for age in AGES if age.has_required_ids]))
class TestUnusedIds:
    def test_they_are_not_members(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one = group.member("one").ask_for_id()
        group.wait_state("Empty")
        one.generation = 0
        group.show(one)
        group.list()
        one.sync().answers()
        one.joined()
        group.show(one)

    def test_a_rebalance_waits_for_them(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one, two = group.member("one"), group.member("two")
        group.settle(one)
        two.ask_for_id()
        waiting = one.join()
        assert waiting.is_parked()
        group.show(one, two)
        two.join().answers()
        waiting.answers()
        group.show(one, two)

    def test_a_rebalance_ends_when_the_last_is_given_back(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one, two, three = group.member("one"), group.member("two"), group.member("three")
        group.settle(one)
        two.ask_for_id()
        three.ask_for_id()
        waiting = one.join()
        assert waiting.is_parked()
        two.leave()
        assert waiting.is_parked()
        three.leave()
        waiting.answers()
        group.show(one, two)
        two.join().answers()

    def test_the_first_rebalance_does_not_wait_for_them(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one, two = group.member("one").ask_for_id(), group.member("two").ask_for_id()
        one.join().answers()
        group.show(one, two)
        waiting = two.join()
        assert waiting.is_parked()
        one.join().answers()
        waiting.answers()
        group.assign(one, two)

    def test_they_outlive_rebalances(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one, two = group.member("one"), group.member("two").ask_for_id()
        group.settle(one)
        one.leave()
        group.wait_state("Empty")
        group.show(one)
        two.joined()
        group.show(two)

    def test_they_go_with_a_deleted_group(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        one = group.member("one").ask_for_id()
        group.wait_state("Empty")
        group.describe()
        pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
        one.join().answers()
        group.describe()

    def test_a_full_group_gives_none(self, pair: Pair, age: Age) -> None:
        group = Group(pair, age)
        members = [group.member(name) for name in ("one", "two", "three", "four")]
        group.settle(*members[:3])
        group.member("late").ask_for_id()
        members[3].ask_for_id()
        waiting = members[3].join()
        assert waiting.is_parked()
        group.member("too-late").join().answers()
        group.describe()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_leave_in_one_request(pair: Pair, version: int) -> None:
    group = Group(pair, NEWEST._replace(leave=version))
    one, two = group.member("one"), group.member("two")
    static = group.member("static", instance="an-instance")
    group.settle(one, two, static)
    newcomer = group.member("newcomer").ask_for_id()
    group.leave(version=version)
    group.leave(
        m.MemberIdentity(member_id="nobody"),
        m.MemberIdentity(member_id=""),
        m.MemberIdentity(member_id="", group_instance_id="nobody"),
        m.MemberIdentity(member_id=one.id, group_instance_id="an-instance"),
        m.MemberIdentity(member_id=one.id, group_instance_id="nobody"),
    )
    group.show(one, two, static)
    group.leave(
        one,
        one,
        newcomer,
        m.MemberIdentity(member_id="", group_instance_id="an-instance"),
        m.MemberIdentity(member_id=static.id, group_instance_id="an-instance"),
    )
    group.show(one, two, static)
    two.join().answers()
    group.leave(two, two)
    group.show(two)


@pytest.mark.parametrize("reason", [None, "", "a reason", "x" * 1000])
def test_reasons_as_text_change_nothing(pair: Pair, reason: str | None) -> None:
    for version in (8, 9):
        group = Group(pair, NEWEST._replace(join=version))
        one, two = group.member("one"), group.member("two")
        group.settle(one)
        two.join(reason=reason).answers()
        waiting = two.join(reason=reason)
        assert waiting.is_parked()
        one.join(reason=reason).answers()
        waiting.answers()
        group.assign(one, two)
        two.join(reason=reason).answers()
        group.leave(m.MemberIdentity(member_id=two.id, reason=reason), version=5)
        group.show(one, two)


def test_session_timeouts_out_of_bounds(pair: Pair) -> None:
    for version in range(10):
        for session_ms in (-1, 0, 499, 500, 1_800_000, 1_800_001, (1 << 31) - 1):
            group = Group(pair, NEWEST._replace(join=version))
            member = group.member("member", session_ms=session_ms)
            member.join().answers()
            member.join(member_id="nobody").answers()
            group.describe()


def test_rebalance_timeouts_of_any_kind(pair: Pair) -> None:
    for rebalance_ms in (-1, 0, -(1 << 31), (1 << 31) - 1):
        group = Group(pair)
        member = group.member("member", rebalance_ms=rebalance_ms)
        member.joined()
        if rebalance_ms <= 0:
            # The time for its SyncGroup is up at once, which takes either broker a moment.
            group.wait_state("Empty")
        group.describe()


def test_a_lone_member_that_waits_for_no_other(pair: Pair) -> None:
    """A rebalance timeout of 0 lets no member come late."""
    group = Group(pair)
    one, two = group.member("one", rebalance_ms=0), group.member("two", rebalance_ms=0)
    one.joined()
    group.wait_state("Empty")
    group.show(one)
    two.joined()
    group.wait_state("Empty")
    group.show(one, two)


def test_a_member_without_a_client_id(pair: Pair) -> None:
    for version in (3, 9):
        for client_id in ("", "ä b/ü", "x" * 200):
            group = Group(pair, NEWEST._replace(join=version))
            member = group.member(client_id)
            member.joined()
            group.describe()
