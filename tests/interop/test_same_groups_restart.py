"""What groups remember when their broker restarts, as at Kafka.

Every script is in two parts: what is before its `yield` happens before the restart. There is one
restart for all of them.
"""

import traceback
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.interop.conftest import start_twins
from tests.interop.same_answers.groups import Group, subscription
from tests.interop.same_answers.offsets import commit, delete_request, fetch_all
from tests.interop.same_answers.pair import Pair, wait_ready
from tests.interop.same_answers.scenes import Topic, create_topic
from tests.support import messages as m

pytestmark = pytest.mark.long

Script = Callable[[Group, Topic], Iterator[None]]
SCRIPTS: dict[str, Script] = {}


def script(run: Script) -> Script:
    SCRIPTS[run.__name__.replace("_", " ")] = run
    return run


@script
def a_settled_group(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    commit(group, topic, {0: 5}, member=one)
    yield
    group.list()
    group.show(one, two)
    fetch_all(group, topic)
    two.sync().answers()
    two.join().answers()
    commit(group, topic, {0: 6}, member=two)
    waiting = one.join()
    assert waiting.is_parked()
    two.join().answers()
    waiting.answers()
    group.assign(one, two)
    group.list()
    group.show(one, two)


@script
def a_settled_group_of_static_members(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one", instance="1"), group.member("two", instance="2")
    group.settle(one, two)
    yield
    group.list()
    group.show(one, two)
    for old in (two, one):
        new = group.member(old.name, instance=old.instance)
        new.joined()
        new.sync().answers()
        group.list()
        group.show(old, new)
        group.leave(m.MemberIdentity(member_id=old.id, group_instance_id=old.instance))
    commit(group, topic, {0: 6}, member=one, group_instance_id="1")


@script
def a_static_member_that_had_restarted(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one", instance="1"), group.member("two", instance="2")
    group.settle(one, two)
    new = group.member("one", instance="1")
    new.joined()
    yield
    group.list()
    group.show(one, two, new)
    new.sync().answers()
    commit(group, topic, {0: 6}, member=new, group_instance_id="1")


@script
def members_with_several_assignors(group: Group, topic: Topic) -> Iterator[None]:
    """Only the one that had won is remembered."""
    one, two = group.member("one"), group.member("two")
    static = group.member("static", instance="1")
    for member in (one, two, static):
        member.protocols = {"range": subscription("a"), "sticky": subscription("a")}
    group.settle(one, two, static)
    yield
    new = group.member("static", instance="1", protocols=static.protocols)
    new.joined()
    group.list()
    group.show(one, two, static, new)
    waiting = [two.join()]
    assert waiting[0].is_parked()
    waiting += [one.join(), new.join()]
    for pending in waiting:
        pending.answers()
    group.assign(one, two, new)
    group.list()
    group.show(one, two, new)


@script
def a_group_that_collected_joins(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one"), group.member("two")
    group.settle(one)
    two.park()
    group.wait_members(2)
    yield
    group.list()
    group.show(one, two)
    two.join().answers()
    two.id = ""
    waiting = two.park()
    group.wait_members(2)
    one.join().answers()
    waiting.answers()
    group.assign(one, two)


@script
def a_group_that_awaited_its_assignment(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one"), group.member("two")
    group.settle(one)
    group.regather([one], two)
    two.sync()
    pair = group.pair
    pair.settle()
    yield
    group.list()
    group.show(one, two)
    one.sync(assign=[one, two]).answers()
    one.join().answers()
    group.list()
    group.show(one, two)


@script
def a_group_that_never_had_an_assignment(group: Group, topic: Topic) -> Iterator[None]:
    one = group.member("one")
    one.joined()
    yield
    group.list()
    group.show(one)
    one.join().answers()
    two = group.member("two")
    two.joined()
    group.list()
    group.show(one, two)


@script
def an_id_that_was_not_used(group: Group, topic: Topic) -> Iterator[None]:
    one = group.member("one").ask_for_id()
    group.wait_state("Empty")
    yield
    group.describe()
    one.join().answers()
    group.describe()


@script
def an_empty_group(group: Group, topic: Topic) -> Iterator[None]:
    one = group.member("one")
    group.settle(one)
    commit(group, topic, {0: 5, 1: 6}, member=one)
    one.leave()
    pair = group.pair
    pair.ask(delete_request(group, {topic.name: [1]}), 0)
    yield
    group.list()
    group.show(one)
    fetch_all(group, topic)
    two = group.member("two")
    assert two.joined().kafka.generation_id == 3
    group.list()
    group.show(two)


@script
def a_group_that_only_stores_positions(group: Group, topic: Topic) -> Iterator[None]:
    commit(group, topic, {0: 5, 1: 6, 2: 7})
    commit(group, topic, {0: 4})
    group.pair.ask(delete_request(group, {topic.name: [1]}), 0)
    yield
    group.list()
    group.show()
    fetch_all(group, topic)
    group.pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    group.list()
    group.show()


@script
def a_group_that_was_deleted(group: Group, topic: Topic) -> Iterator[None]:
    one = group.member("one")
    group.settle(one)
    commit(group, topic, {0: 5}, member=one)
    one.leave()
    group.pair.ask(m.DeleteGroupsRequest(groups_names=[group.id]), 2)
    yield
    group.list()
    group.show(one)
    fetch_all(group, topic)


@script
def a_group_of_another_type(group: Group, topic: Topic) -> Iterator[None]:
    one = group.member("one", type="connect", protocols={"compatible": b"\x00"})
    group.settle(one)
    yield
    group.list()
    group.show(one)
    one.sync().answers()
    one.leave()
    group.list()
    group.show(one)


@script
def a_group_that_has_lost_a_member(group: Group, topic: Topic) -> Iterator[None]:
    one, two = group.member("one"), group.member("two")
    group.settle(one, two)
    two.leave()
    yield
    group.list()
    group.show(one, two)
    two.leave()
    group.list()
    group.show(one, two)


class _Run:
    """One script and what was wrong with it."""

    def __init__(self, script: Script, pair: Pair, topic: Topic, wrong: list[str]) -> None:
        self.pair = pair
        self.wrong = wrong
        self._group = Group(pair)
        self._parts = script(self._group, topic)

    def go_on(self) -> None:
        self.pair.disconnect()
        self._group.wait_coordinated()
        try:
            next(self._parts, None)
        except Exception:  # noqa: BLE001 - told to the test of this script.
            self.wrong.append(traceback.format_exc())


def _note(wrong: list[str], what: str, text: str) -> None:
    wrong.append(f"{what}: {text}")


@pytest.fixture(scope="module")
def wrongs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What was wrong, by script."""
    found: dict[str, list[str]] = {name: [] for name in SCRIPTS}
    with start_twins(tmp_path_factory.mktemp("restart")) as twins:
        runs = []
        for name, one in SCRIPTS.items():
            pair = Pair(twins, partial(_note, found[name]))
            runs.append(_Run(one, pair, create_topic(pair, partitions=3), found[name]))
        for run in runs:
            run.go_on()
        # Sessions start again when groups are loaded, and a Kafka on a busy machine takes longer to
        # come up than they last.
        twins.kohort.stop()
        twins.kafka.stop()
        twins.kafka.start()
        wait_ready(twins.kafka)
        twins.kohort.start()
        for run in runs:
            run.go_on()
            run.pair.disconnect()
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_restart(wrongs: dict[str, list[str]], name: str) -> None:
    if wrong := wrongs[name]:
        pytest.fail("\n".join(wrong), pytrace=False)
