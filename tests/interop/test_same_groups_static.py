"""Static members (KIP-345, KIP-814) restart, are fenced and removed, as at Kafka."""

import pytest

from kohort.protocol.messages.membership import MemberIdentity
from tests.interop.same_answers import differences
from tests.interop.same_answers.ages import NEWEST, STATIC_AGES, of_ages
from tests.interop.same_answers.groups import Group, Member, subscription
from tests.interop.same_answers.offsets import commit, fetch_all
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import Topic


@pytest.fixture(params=of_ages(STATIC_AGES))
def group(pair: Pair, request: pytest.FixtureRequest) -> Group:
    return Group(pair, request.param)


def static(group: Group, name: str) -> Member:
    return group.member(name, instance=f"{name}-instance")


def restarted(member: Member) -> Member:
    """The next process of the same instance."""
    new = member.group.member(member.name, instance=member.instance)
    new.protocols, new.generation = member.protocols, member.generation
    return new


def check_fenced(old: Member) -> None:
    """With the instance id and without it, whatever it asks."""
    group = old.group
    old.heartbeat()
    old.heartbeat(group_instance_id=None)
    old.sync().answers()
    old.sync(group_instance_id=None).answers()
    old.join().answers()
    old.join(group_instance_id=None).answers()
    group.leave(MemberIdentity(member_id=old.id, group_instance_id=old.instance))
    group.leave(MemberIdentity(member_id=old.id))


def test_static_members_settle(group: Group) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    group.show(one, two)
    for member in (one, two):
        member.heartbeat(group_instance_id=None)
        member.sync(group_instance_id=None).answers()


def test_a_follower_restarts(group: Group, group_topic: Topic) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    new = restarted(two)
    new.joined()
    group.show(one, two, new)
    new.sync().answers()
    check_fenced(two)
    commit(group, group_topic, 1, member=two, group_instance_id=two.instance)
    commit(group, group_topic, 2, member=two)
    commit(group, group_topic, 3, member=new, group_instance_id=two.instance)
    fetch_all(group, group_topic, versions=[8])
    group.show(one, new)


def test_the_leader_restarts(group: Group) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    new = restarted(one)
    new.joined()
    group.show(one, two, new)
    new.sync().answers()
    check_fenced(one)
    group.show(two, new)
    # It is the leader still.
    waiting = new.join()
    assert waiting.is_parked()
    two.join().answers()
    waiting.answers()
    group.assign(new, two)
    group.show(new, two)


def test_a_lone_leader_restarts_several_times(group: Group) -> None:
    first = static(group, "one")
    group.settle(first)
    second = restarted(first)
    second.joined()
    third = restarted(second)
    third.joined()
    third.sync(assign=[third]).answers()
    for old in (first, second):
        check_fenced(old)
    group.show(third)


def test_a_static_follower_of_a_dynamic_leader_restarts(group: Group) -> None:
    one, two = group.member("one"), static(group, "two")
    group.settle(one, two)
    new = restarted(two)
    new.joined()
    new.sync().answers()
    group.show(one, two, new)
    one.leave()
    new.join().answers()
    group.assign(new)
    group.show(new)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_it_restarts_while_the_assignment_is_awaited(group: Group, leads: bool) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.gather(one, two)
    old, other = (one, two) if leads else (two, one)
    sync = two.sync()
    assert sync.is_parked()
    new = restarted(old)
    waiting = new.join()
    assert waiting.is_parked()
    sync.answers()
    group.show(one, two)
    check_fenced(old)
    other.join().answers()
    waiting.answers()
    group.assign(*((new, two) if leads else (one, new)))
    group.show(other, new)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_it_restarts_while_joins_are_collected(group: Group, leads: bool) -> None:
    one, two, three = static(group, "one"), static(group, "two"), static(group, "three")
    group.settle(one, two)
    waiting = three.join()
    group.wait_members(3)
    old, other = (one, two) if leads else (two, one)
    old_waiting = old.join()
    assert old_waiting.is_parked()
    new = restarted(old)
    new_waiting = new.join()
    old_waiting.answers()
    assert new_waiting.is_parked()
    group.show(one, two, three)
    other.join().answers()
    new_waiting.answers()
    waiting.answers()
    group.show(other, new, three)


def test_it_restarts_before_it_has_joined_again(group: Group) -> None:
    one, two, three = static(group, "one"), static(group, "two"), static(group, "three")
    group.settle(one, two)
    waiting = [three.join()]
    group.wait_members(3)
    new = restarted(two)
    waiting.append(new.join())
    assert waiting[-1].is_parked()
    one.join().answers()
    for pending in waiting:
        pending.answers()
    group.assign(one, new, three)
    group.show(one, two, new, three)


OFFERS = {
    "the same": ({"range": b"1"}, {"range": b"1"}),
    "another subscription": ({"range": subscription("a")}, {"range": subscription("b", "c")}),
    "another order": ({"range": b"1", "sticky": b"2"}, {"sticky": b"2", "range": b"1"}),
    "fewer": ({"range": b"1", "sticky": b"2"}, {"range": b"1"}),
    "only the other": ({"range": b"1", "sticky": b"2"}, {"sticky": b"2"}),
    "more behind": ({"range": b"1"}, {"range": b"1", "sticky": b"2"}),
    "more in front": ({"range": b"1"}, {"sticky": b"2", "range": b"1"}),
    "something else": ({"range": b"1"}, {"sticky": b"2"}),
}


@pytest.mark.parametrize("offers", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_it_restarts_and_offers(
    group: Group, offers: tuple[dict[str, bytes], dict[str, bytes]], leads: bool
) -> None:
    before, after = offers
    one, two, three = static(group, "one"), static(group, "two"), static(group, "three")
    one.protocols = two.protocols = three.protocols = before
    group.settle(one, two, three)
    old, other = (one, two) if leads else (two, one)
    new = restarted(old)
    new.protocols = after
    waiting = [new.join()]
    if waiting[0].is_parked():
        group.show(old, other)
        waiting += [other.join(), three.join()]
    for pending in waiting:
        pending.answers()
    group.show(old, other, new)


def test_all_restart_one_after_the_other(group: Group) -> None:
    members = [static(group, name) for name in ("one", "two", "three")]
    group.settle(*members)
    for index, old in enumerate(members):
        members[index] = restarted(old)
        members[index].joined()
        members[index].sync().answers()
        group.show(*members, old)


def test_it_joins_again_under_its_own_id(group: Group) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    two.join().answers()
    two.join(group_instance_id=None).answers()
    group.show(one, two)
    waiting = one.join()
    assert waiting.is_parked()
    two.join().answers()
    waiting.answers()
    group.assign(one, two)
    group.show(one, two)


@pytest.mark.parametrize("how", ["instance", "both", "id"])
def test_it_is_removed(group: Group, how: str) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    group.leave(
        MemberIdentity(
            member_id="" if how == "instance" else two.id,
            group_instance_id=None if how == "id" else two.instance,
        )
    )
    group.show(one, two)
    one.join().answers()
    group.assign(one)
    new = restarted(two)
    waiting = new.join()
    assert waiting.is_parked()
    one.join().answers()
    waiting.answers()
    group.show(one, two, new)


def test_its_wait_ends_when_it_is_removed(group: Group) -> None:
    one, two, three = static(group, "one"), static(group, "two"), static(group, "three")
    group.settle(one, two)
    waiting = three.join()
    group.wait_members(3)
    waiting_too = two.join()
    assert waiting_too.is_parked()
    group.leave(MemberIdentity(member_id="", group_instance_id=two.instance))
    waiting_too.answers()
    assert waiting.is_parked()
    one.join().answers()
    waiting.answers()
    group.show(one, three)


def test_one_instance_joins_twice_before_anything_settled(group: Group) -> None:
    one, two = static(group, "one"), static(group, "two")
    group.settle(one)
    first = two.join()
    group.wait_members(2)
    new = restarted(two)
    second = new.join()
    first.answers()
    assert second.is_parked()
    one.join().answers()
    second.answers()
    group.assign(one, new)
    group.show(one, new)


def test_an_instance_id_that_is_empty(group: Group) -> None:
    one = group.member("one", instance="")
    one.join().answers()
    group.describe()


def test_instance_ids_of_any_text(group: Group) -> None:
    one = group.member("one", instance="ä b/\n" + "x" * 200)
    group.settle(one)
    group.show(one)
    new = restarted(one)
    new.joined()
    group.show(one, new)


def test_one_instance_is_in_two_groups(group: Group) -> None:
    one = static(group, "one")
    group.settle(one)
    other = Group(group.pair, group.age)
    two = static(other, "one")
    other.settle(two)
    group.show(one)
    other.show(two)


def test_it_restarts_in_a_full_group(group: Group) -> None:
    """A replacement makes the group no larger."""
    members = [static(group, name) for name in ("one", "two", "three", "four")]
    group.settle(*members)
    new = restarted(members[3])
    new.join().answers(differs=differences.STATIC_MEMBER_OF_A_FULL_GROUP)


def test_it_restarts_under_another_client_id(pair: Pair) -> None:
    group = Group(pair)
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    new = group.member("other", instance=two.instance)
    new.joined()
    group.describe(differs=differences.CLIENT_OF_THE_NEW_PROCESS)


def test_the_leader_skips_its_assignment_and_assigns_later(pair: Pair) -> None:
    group = Group(pair, NEWEST)
    one, two = static(group, "one"), static(group, "two")
    group.settle(one, two)
    new = restarted(one)
    assert new.joined().kafka.skip_assignment
    new.sync().answers()
    new.sync(assign=[new, two]).answers()
    new.protocols = {"range": subscription("b")}
    waiting = new.join()
    assert waiting.is_parked()
    two.join().answers()
    answers = waiting.answers()
    assert not answers.kafka.skip_assignment
    group.assign(new, two)
    group.show(new, two)


def test_a_dynamic_leader_cannot_be_replaced(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), static(group, "two")
    group.settle(one, two)
    thief = group.member("thief", instance=two.instance)
    thief.id = one.id
    thief.join().answers()
    thief.id, thief.protocols = two.id, two.protocols
    thief.join().answers()
    group.show(one, two)
