"""The initial rebalance delay (KIP-134), to the second, beside Kafka's."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import pytest

from tests.interop.conftest import start_twins
from tests.interop.same_answers import differences
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.timed_scripts import Scripts, Stopwatch

pytestmark = pytest.mark.long

DELAY_S = 3
scripts = Scripts()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[str]]]:
    settings = {"group.initial.rebalance.delay.ms": str(DELAY_S * 1000), "group.max.size": "100"}
    with (
        start_twins(tmp_path_factory.mktemp("delay"), settings) as twins,
        scripts.running(request, twins) as futures,
    ):
        yield futures


def joins_at(rebalance_s: int, times_s: Sequence[float], ends_s: float, pair: Pair) -> None:
    """Members come at these times and are all answered at once."""
    group = Group(pair)
    watch = Stopwatch(pair)
    waiting = []
    for index, at_s in enumerate(times_s):
        member = group.member(f"member-{index}", rebalance_ms=rebalance_s * 1000)
        watch.until(at_s)
        waiting.append(watch.watch(member.join(3)))
        group.wait_members(index + 1)
    for pending in waiting:
        watch.answers(pending, ends_s)
    group.describe()


for rebalance_s, times_s, ends_s in (
    (20, [0], 3),
    (20, [0, 1], 6),
    (20, [0, 1, 2], 6),
    (20, [0, 2, 4], 9),
    (8, [0, 2, 4, 5.5], 8),
    (8, [0, 2, 4, 6.5], 8),
    (8, [0, 2, 4, 7.3], 8),
    (4, [0, 1], 4),
    (2, [0], 3),
    (2, [0, 1], 3),
):
    scripts.add(
        f"timeout {rebalance_s} s, joins at {times_s}",
        partial(joins_at, rebalance_s, times_s, ends_s),
    )


@scripts
def an_unused_id_extends_nothing(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    waiting = watch.watch(group.member("one").join(3))
    watch.until(1)
    group.member("two").ask_for_id()
    group.describe()
    watch.answers(waiting, 3)
    group.describe()


@scripts
def the_delay_begins_with_the_member_and_not_with_its_id(pair: Pair) -> None:
    group = Group(pair)
    one = group.member("one").ask_for_id()
    watch = Stopwatch(pair)
    watch.until(1)
    watch.answers(watch.watch(one.join()), 4)


@scripts
def an_id_that_expires_does_not_cut_it_short(pair: Pair) -> None:
    group = Group(pair)
    group.member("two", session_ms=1500).ask_for_id()
    watch = Stopwatch(pair)
    waiting = watch.watch(group.member("one").join(3))
    watch.answers(waiting, 3, later=differences.full_initial_delay(1.5))


@scripts
def static_members_extend_it_too(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    first = watch.watch(group.member("one", instance="one").join())
    watch.until(1)
    second = watch.watch(group.member("two", instance="two").join())
    watch.answers(first, 6)
    watch.answers(second, 6)


@scripts
def a_static_member_that_restarts_meanwhile_extends_nothing(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    first = watch.watch(group.member("one", instance="one").join())
    group.wait_members(1)
    watch.until(1)
    second = watch.watch(group.member("one", instance="one").join())
    watch.answers(first, 1)
    watch.answers(second, 3)
    group.describe()


@scripts
def all_leave_before_it_ends(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    one = group.member("one").ask_for_id()
    waiting = watch.watch(one.join())
    group.wait_members(1)
    watch.until(1)
    one.leave()
    watch.answers(waiting, 1)
    group.describe()
    watch.state(group, "Empty", 3)
    group.describe()
    two = group.member("two").ask_for_id()
    watch = Stopwatch(pair)
    answers = watch.answers(watch.watch(two.join()), 3)
    assert answers.kafka.generation_id == 2


@scripts
def one_of_two_leaves_before_it_ends(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    one, two = group.member("one").ask_for_id(), group.member("two").ask_for_id()
    waiting = watch.watch(one.join())
    group.wait_members(1)
    waiting_too = watch.watch(two.join())
    group.wait_members(2)
    watch.until(1)
    one.leave()
    watch.answers(waiting, 1)
    watch.answers(waiting_too, 6)
    group.describe()


@scripts
def heartbeats_meanwhile(pair: Pair) -> None:
    group = Group(pair)
    watch = Stopwatch(pair)
    one = group.member("one").ask_for_id()
    one.generation = 0
    waiting = watch.watch(one.join())
    group.wait_members(1)
    one.heartbeat()
    one.heartbeat(generation_id=-1)
    one.sync().answers()
    group.describe()
    watch.answers(waiting, 3)


@scripts
def a_settled_group_does_not_wait(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two").ask_for_id()
    watch = Stopwatch(pair)
    watch.answers(watch.watch(one.join(3)), 3)
    watch = Stopwatch(pair)
    waiting = watch.watch(two.join())
    group.wait_members(2)
    one.join().answers()
    watch.answers(waiting, 0)


@pytest.mark.parametrize("name", scripts.names)
def test_initial_delay(running: dict[str, Future[str]], name: str) -> None:
    if wrong := running[name].result():
        pytest.fail(wrong, pytrace=False)
