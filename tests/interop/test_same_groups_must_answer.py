"""Every client that waits is answered, whatever becomes of it; Kafka sometimes forgets."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.interop.same_answers import differences
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.pair import Pair, Twins
from tests.interop.same_answers.timed_scripts import Scripts

scripts = Scripts()


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, twins: Twins) -> Iterator[dict[str, Future[str]]]:
    with scripts.running(request, twins) as futures:
        yield futures


@scripts
def a_join_that_is_superseded(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", patience_s=2)
    group.settle(one)
    first = two.park()
    group.wait_members(2)
    second = two.join()
    pair.settle()
    first.answers(differs=differences.SUPERSEDED_REQUEST)
    one.join().answers()
    second.answers()
    group.show(one, two)


@scripts
def a_sync_that_is_superseded(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", patience_s=2)
    group.gather(one, two)
    first = two.sync()
    pair.settle()
    second = two.sync()
    pair.settle()
    first.answers(differs=differences.SUPERSEDED_REQUEST)
    one.sync(assign=[one, two]).answers()
    second.answers()
    group.show(one, two)


@scripts
def a_member_that_waits_for_its_assignment_is_removed(pair: Pair) -> None:
    group = Group(pair)
    one, two = group.member("one"), group.member("two", patience_s=2)
    group.gather(one, two)
    waiting = two.sync()
    pair.settle()
    two.leave()
    waiting.answers(differs=differences.REMOVED_WHILE_WAITING)
    one.join().answers()
    group.show(one, two)


@scripts
def one_connection_is_served_in_order(pair: Pair) -> None:
    """What follows a join that waits on the same connection waits, too."""
    group = Group(pair)
    one, two = group.member("one"), group.member("two")
    group.settle(one)
    waiting = two.park()
    group.wait_members(2)
    behind = waiting.line.send(two.heartbeat_request(4), 4)
    assert behind.is_parked(for_s=1)
    one.join().answers()
    waiting.answers()
    behind.answers()


@pytest.mark.parametrize("name", scripts.names)
def test_must_answer(running: dict[str, Future[str]], name: str) -> None:
    if wrong := running[name].result():
        pytest.fail(wrong, pytrace=False)
