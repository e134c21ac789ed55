"""Members that stay silent or away, and how long everybody waits for them, beside Kafka."""

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest

from tests.interop.same_answers import differences
from tests.interop.same_answers.groups import Group, Member, subscription
from tests.interop.same_answers.offsets import commit, fetch_all
from tests.interop.same_answers.pair import Pair, Pending, Twins
from tests.interop.same_answers.scenes import create_topic
from tests.interop.same_answers.timed_scripts import Scripts, Stopwatch

pytestmark = pytest.mark.long

scripts = Scripts()


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, twins: Twins) -> Iterator[dict[str, Future[str]]]:
    with scripts.running(request, twins) as futures:
        yield futures


def joins_collected(
    group: Group, one: Member, two: Member, three: Member
) -> tuple[Stopwatch, Pending, Pending]:
    """`three` joins a settled group, and `one` again; `two` is awaited."""
    group.settle(one, two)
    watch = Stopwatch(group.pair)
    waiting = watch.watch(three.park())
    group.wait_members(3)
    return watch, waiting, watch.watch(one.join())


# Sessions.


@scripts
def a_silent_follower_is_missed(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=2000)
    group.settle(one, two)
    watch = Stopwatch(pair)
    watch.state(group, "PreparingRebalance", 2)
    group.show(one, two)
    one.join().answers()
    group.assign(one)
    group.show(one, two)


@scripts
def a_silent_leader_is_missed(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one", session_ms=2000), group.member("two")
    group.settle(one, two)
    watch = Stopwatch(pair)
    watch.state(group, "PreparingRebalance", 2)
    two.join().answers()
    group.assign(two)
    group.show(one, two)


@scripts
def a_lone_silent_member_is_missed(pair: Pair) -> None:
    group = Group(pair)
    one = group.member("one", session_ms=2000)
    group.settle(one)
    watch = Stopwatch(pair)
    watch.state(group, "Empty", 2)
    group.show(one)
    two = group.member("two")
    assert two.joined().kafka.generation_id == 3


@scripts
def a_silent_static_member_is_missed(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", instance="two", session_ms=2000)
    group.settle(one, two)
    watch = Stopwatch(pair)
    watch.state(group, "PreparingRebalance", 2)
    group.show(one, two)
    again = group.member("two", instance="two")
    waiting = again.join()
    group.wait_members(2)
    one.join().answers()
    waiting.answers()
    group.show(one, two, again)


@scripts
def heartbeats_keep_a_member(pair: Pair) -> None:
    group = Group(pair)
    one = group.member("one", session_ms=2000)
    group.settle(one)
    watch = Stopwatch(pair)
    for at_s in (1, 2, 3):
        watch.until(at_s)
        group.show(one)
    watch.state(group, "Empty", 5)


def prolonged_by(what: str, until_s: float, pair: Pair) -> None:
    """A member does something a second before it would be missed."""
    topic = create_topic(pair)
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=2000)
    group.settle(one, two)
    watch = Stopwatch(pair)
    watch.until(1)
    match what:
        case "a heartbeat":
            two.heartbeat()
        case "a heartbeat of another generation":
            two.heartbeat(generation_id=0)
        case "a sync":
            two.sync().answers()
        case "a join":
            two.join().answers()
        case "a commit":
            commit(group, topic, 5, member=two)
        case "a look at positions":
            fetch_all(group, topic, versions=[8])
        case _:
            raise AssertionError(what)
    watch.state(group, "PreparingRebalance", until_s)
    group.show(one, two)


for what, until_s in (
    ("a heartbeat", 3),
    ("a heartbeat of another generation", 2),
    ("a sync", 2),
    ("a join", 2),
    ("a commit", 3),
    ("a look at positions", 2),
):
    scripts.add(f"a session after {what}", partial(prolonged_by, what, until_s))


@scripts
def sessions_start_again_while_joins_are_collected(pair: Pair) -> None:
    group = Group(pair)
    one, two, three = group.member("one"), group.member("two", session_ms=2000), group.member("3")
    watch, waiting, again = joins_collected(group, one, two, three)
    watch.until(1)
    two.heartbeat()
    watch.answers(waiting, 3)
    watch.answers(again, 3)
    group.describe()


@scripts
def a_commit_while_joins_are_collected(pair: Pair) -> None:
    """Members commit what they have read when they hear that they have to join again."""
    topic = create_topic(pair)
    group = Group(pair)
    one, two, three = group.member("one"), group.member("two", session_ms=2000), group.member("3")
    watch, waiting, again = joins_collected(group, one, two, three)
    watch.until(1)
    commit(group, topic, 5, member=two)
    watch.answers(waiting, 3)
    watch.answers(again, 3)
    group.describe()


@scripts
def heartbeats_while_the_assignment_is_awaited(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=2000)
    group.gather(one, two)
    watch = Stopwatch(pair)
    watch.until(1)
    two.heartbeat()
    watch.state(group, "PreparingRebalance", 3)
    group.show(one, two)


@scripts
def a_member_that_waits_is_not_missed(pair: Pair) -> None:
    group = Group(pair)
    one, two, three = group.member("one", session_ms=1000), group.member("two"), group.member("3")
    for member in (one, two, three):
        member.rebalance_ms = 3000
    watch, waiting, again = joins_collected(group, one, two, three)
    watch.answers(again, 3)
    watch.answers(waiting, 3)
    group.show(one, two, three)
    watch.state(group, "PreparingRebalance", 4)
    group.show(one, three)


@scripts
def a_member_that_waits_for_its_assignment_is_not_missed(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=1000)
    group.gather(one, two)
    watch = Stopwatch(pair)
    waiting = watch.watch(two.sync())
    watch.until(2)
    one.sync(assign=[one, two]).answers()
    watch.answers(waiting, 2)
    group.show(one, two)


# The join phase.


@scripts
def those_that_do_not_come_are_left_behind(pair: Pair) -> None:
    group = Group(pair)
    one, two, three = (group.member(name, rebalance_ms=2000) for name in ("one", "two", "three"))
    watch, waiting, again = joins_collected(group, one, two, three)
    group.show(one, two)
    watch.answers(waiting, 2)
    watch.answers(again, 2)
    group.show(one, two, three)
    group.assign(one, three)
    two.join().answers()


@scripts
def a_leader_that_does_not_come_is_replaced(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=2000) for name in ("one", "two"))
    group.settle(one, two)
    two.protocols = {"range": subscription("b")}
    watch = Stopwatch(pair)
    answers = watch.answers(watch.watch(two.join()), 2)
    assert answers.kafka.leader == answers.kafka.member_id
    group.show(one, two)


@scripts
def the_longest_timeout_when_it_began_counts(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=1000) for name in ("one", "two"))
    three, four = group.member("three", rebalance_ms=2000), group.member("four", rebalance_ms=6000)
    group.settle(one, two)
    watch = Stopwatch(pair)
    waiting = [watch.watch(three.park())]
    group.wait_members(3)
    waiting.append(watch.watch(four.park()))
    group.wait_members(4)
    waiting.append(watch.watch(one.join()))
    for pending in waiting:
        watch.answers(pending, 2)
    group.show(one, two, three, four)


@scripts
def the_first_version_waits_for_the_session_timeout(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one", session_ms=2000), group.member("two", session_ms=2000)
    one.join(0).answers()
    watch = Stopwatch(pair)
    waiting = watch.watch(two.join(0))
    group.wait_members(2)
    watch.until(0.5)
    one.heartbeat(2)
    watch.answers(waiting, 2)
    group.show(one, two)


@scripts
def static_members_stay_without_coming(pair: Pair) -> None:
    group = Group(pair)
    one, two, three = group.member("one"), group.member("two", instance="two"), group.member("3")
    for member in (one, two, three):
        member.rebalance_ms = 2000
    watch, waiting, again = joins_collected(group, one, two, three)
    watch.answers(waiting, 2)
    watch.answers(again, 2)
    group.show(one, two, three)
    group.assign(one, three)
    group.show(one, two, three)
    # One more rebalance timeout, and it is gone, however long its session.
    watch.state(group, "PreparingRebalance", 4)
    group.show(one, two, three)


@scripts
def when_all_that_are_left_are_static_and_away(pair: Pair) -> None:
    group = Group(pair)
    one = group.member("one", instance="one", session_ms=4000, rebalance_ms=1000)
    two = group.member("two", rebalance_ms=1000)
    group.settle(one)
    watch = Stopwatch(pair)
    waiting = two.park()
    group.wait_members(2)
    two.leave()
    waiting.answers()
    watch.until(2.5)
    group.show()
    watch.state(group, "Empty", 4)
    group.show(one)


@scripts
def an_unused_id_is_waited_for_until_it_expires(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=2000)
    group.settle(one)
    watch = Stopwatch(pair)
    two.ask_for_id()
    waiting = watch.watch(one.join())
    watch.answers(waiting, 2)
    group.show(one)
    two.join().answers()


@scripts
def an_unused_id_is_waited_for_no_longer_than_members(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one", rebalance_ms=2000), group.member("two", session_ms=20_000)
    group.settle(one)
    two.ask_for_id()
    watch = Stopwatch(pair)
    watch.answers(watch.watch(one.join()), 2)
    waiting = two.join()
    group.wait_members(2)
    one.join().answers()
    waiting.answers()
    group.show(one, two)


@scripts
def a_member_that_is_removed_is_waited_for_no_longer(pair: Pair) -> None:
    group = Group(pair)
    members = [group.member(name, rebalance_ms=3000) for name in ("one", "two", "three")]
    group.settle(*members)
    watch = Stopwatch(pair)
    waiting = [group.member("four", rebalance_ms=3000).ask_for_id()]
    late = group.member("late", rebalance_ms=30_000).ask_for_id()
    joins = [watch.watch(waiting[0].join())]
    group.wait_members(4)
    joins.append(watch.watch(late.join()))
    group.wait_members(5)
    for member in members[:2]:
        joins.append(watch.watch(member.join()))
        pair.settle()
    refused_s = watch.elapsed_s
    members[2].join().answers()
    for pending in joins:
        later = differences.refused_member(3)
        watch.answers(pending, refused_s, later=later)
    group.show(*members, *waiting, late)


# The sync phase.


@scripts
def no_member_comes_for_its_assignment(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=2000) for name in ("one", "two"))
    group.gather(one, two)
    watch = Stopwatch(pair)
    watch.state(group, "Empty", 2)
    group.show(one, two)


@scripts
def the_leader_does_not_assign(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=2000) for name in ("one", "two"))
    group.gather(one, two)
    watch = Stopwatch(pair)
    waiting = watch.watch(two.sync())
    watch.answers(waiting, 2)
    group.show(one, two)
    two.join().answers()
    group.show(two)


@scripts
def a_follower_never_comes_for_its_assignment(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=2000) for name in ("one", "two"))
    group.gather(one, two)
    watch = Stopwatch(pair)
    one.sync(assign=[one, two]).answers()
    group.show(one, two)
    watch.state(group, "PreparingRebalance", 2)
    group.show(one, two)


@scripts
def a_static_follower_never_comes_for_its_assignment(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one", rebalance_ms=2000), group.member("two", instance="two")
    two.rebalance_ms = 2000
    group.gather(one, two)
    watch = Stopwatch(pair)
    one.sync(assign=[one, two]).answers()
    watch.state(group, "PreparingRebalance", 2)
    group.show(one, two)


@scripts
def a_follower_comes_for_its_assignment_just_in_time(pair: Pair) -> None:
    group = Group(pair)
    one, two = (group.member(name, rebalance_ms=2000) for name in ("one", "two"))
    group.gather(one, two)
    watch = Stopwatch(pair)
    one.sync(assign=[one, two]).answers()
    watch.until(1)
    two.sync().answers()
    watch.until(3)
    group.show(one, two)


# Static members that come back.


@scripts
def a_replacement_has_its_own_session(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", instance="two", session_ms=2000)
    group.settle(one, two)
    watch = Stopwatch(pair)
    new = group.member("two", instance="two", session_ms=4000)
    new.joined()
    watch.state(group, "PreparingRebalance", 4, later=differences.session_of_the_new_process(2))
    group.show(one, two, new)


@scripts
def a_replacement_that_syncs_has_its_own_session(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", instance="two", session_ms=4000)
    group.settle(one, two)
    new = group.member("two", instance="two", session_ms=2000)
    new.joined()
    watch = Stopwatch(pair)
    new.heartbeat()
    watch.state(group, "PreparingRebalance", 2)
    group.show(one, two, new)


@scripts
def a_new_member_that_sends_heartbeats_may_not_stop(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", session_ms=2000)
    group.settle(one)
    waiting = two.park()
    group.wait_members(2)
    watch = Stopwatch(pair)
    watch.watch(waiting)
    two.heartbeat(generation_id=1)
    watch.answers(waiting, 2)
    group.show(one, two)


@scripts
def a_new_member_that_never_gets_an_answer_is_missed_after_five_minutes(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one", rebalance_ms=600_000), group.member("two", session_ms=1000)
    group.settle(one)
    watch = Stopwatch(pair)
    waiting = two.park()
    group.wait_members(2)
    watch.watch(waiting)
    while watch.elapsed_s < 290:
        watch.until(min(watch.elapsed_s + 20, 290))
        one.heartbeat()
    watch.answers(waiting, 300)
    group.show(one, two)


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", scripts.names)
def test_timeouts(running: dict[str, Future[str]], name: str) -> None:
    if wrong := running[name].result():
        pytest.fail(wrong, pytrace=False)
