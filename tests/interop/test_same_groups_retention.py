"""When positions and groups that are not needed are gone (KIP-211, KIP-496), beside Kafka."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.interop.conftest import start_twins
from tests.interop.same_answers import differences
from tests.interop.same_answers.ages import BEFORE_REQUIRED_IDS
from tests.interop.same_answers.groups import Group, subscription
from tests.interop.same_answers.offsets import commit, fetch_all, fetch_request
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import create_topic
from tests.interop.same_answers.timed_scripts import Scripts, Stopwatch

pytestmark = pytest.mark.long

RETENTION_S = 60
GONE = "Dead"
"""How DescribeGroups v5 shows a group that is not there."""

AGE = BEFORE_REQUIRED_IDS
"""A sweep would take a group away that has an id and no member yet."""

scripts = Scripts()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[str]]]:
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "300",
    }
    with (
        start_twins(tmp_path_factory.mktemp("retention"), settings) as twins,
        scripts.running(request, twins) as futures,
    ):
        yield futures


@scripts
def a_commit_with_a_time_of_its_own(pair: Pair) -> None:
    topic = create_topic(pair)
    for version in (2, 3, 4):
        group = Group(pair)
        commit(group, topic, 5, version=version, retention_time_ms=2000)
        watch = Stopwatch(pair)
        fetch_all(group, topic, versions=[8])
        watch.state(group, GONE, 2)
        fetch_all(group, topic, versions=[8])
        group.list()


@scripts
def an_empty_group_without_positions(pair: Pair) -> None:
    group = Group(pair, AGE)
    one = group.member("one")
    group.settle(one)
    watch = Stopwatch(pair)
    one.leave()
    watch.state(group, GONE, 0.3)
    group.list()
    two = group.member("two", session_ms=60_000)
    assert two.joined().kafka.generation_id == 1


@scripts
def positions_of_members(pair: Pair) -> None:
    """What no member reads goes a minute after its commit; what a member reads stays."""
    read, unread = create_topic(pair), create_topic(pair)
    group = Group(pair, AGE)
    one = group.member(
        "one", protocols={"range": subscription(read.name)}, session_ms=60_000, rebalance_ms=200_000
    )
    group.settle(one)
    watch = Stopwatch(pair)
    for topic in (read, unread):
        commit(group, topic, 5, member=one)
    watch.until(RETENTION_S / 2)
    one.heartbeat()
    wait_gone(watch, group, RETENTION_S, 1)
    fetch_all(group, read, versions=[8])
    one.heartbeat()
    one.leave()
    # An Empty group keeps what its last members read a minute longer.
    watch = Stopwatch(pair)
    watch.state(group, GONE, RETENTION_S)


def wait_gone(watch: Stopwatch, group: Group, at_s: float, left: int) -> None:
    """Wait until that time, before which nothing may be gone, and then until it is."""
    request = fetch_request(group, 8, None)
    watch.until(at_s - 3)
    pair = group.pair
    before = pair.ask(request, 8)
    assert len(before.kafka.groups[0].topics) > left
    group.wait_until(request, 8, lambda answer: len(answer.groups[0].topics) == left)


@scripts
def positions_with_times_of_their_own_of_members(pair: Pair) -> None:
    read, unread = create_topic(pair), create_topic(pair)
    group = Group(pair, AGE)
    one = group.member("one", protocols={"range": subscription(read.name)})
    group.settle(one)
    watch = Stopwatch(pair)
    for topic in (read, unread):
        commit(group, topic, 5, member=one, version=4, retention_time_ms=4000)
    wait_gone(watch, group, 4, 1)
    fetch_all(group, read, versions=[8])
    watch = Stopwatch(pair)
    one.leave()
    watch.state(group, GONE, 0.3)


@scripts
def positions_without_a_member(pair: Pair) -> None:
    group = Group(pair)
    topic = create_topic(pair)
    commit(group, topic, 5)
    watch = Stopwatch(pair)
    watch.until(RETENTION_S - 3)
    group.describe()
    watch.state(group, GONE, RETENTION_S)


@scripts
def an_unused_id(pair: Pair) -> None:
    group = Group(pair)
    one = group.member("one", session_ms=3000).ask_for_id()
    watch = Stopwatch(pair)
    watch.until(1.5)
    group.describe(differs=differences.GROUP_WITH_AN_UNUSED_ID)
    one.join().answers(differs=differences.GROUP_WITH_AN_UNUSED_ID)


@scripts
def another_type_of_group_loses_nothing(pair: Pair) -> None:
    group = Group(pair, AGE)
    topic = create_topic(pair)
    one = group.member("one", type="connect")
    group.settle(one)
    commit(group, topic, 5, member=one, version=4, retention_time_ms=1000)
    watch = Stopwatch(pair)
    watch.until(2.5)
    fetch_all(group, topic, versions=[8])
    group.describe()


@pytest.mark.parametrize("name", scripts.names)
def test_retention(running: dict[str, Future[str]], name: str) -> None:
    if wrong := running[name].result():
        pytest.fail(wrong, pytrace=False)
