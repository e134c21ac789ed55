"""What is known of transactions after a restart is what was known before, as at Kafka.

Markers are not looked at: with every restart of Kafka they have a higher coordinator epoch.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.interop.conftest import start_twins
from tests.interop.same_answers import differences
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group
from tests.interop.same_answers.offsets import fetch_request
from tests.interop.same_answers.pair import Pair, Twins, wait_ready
from tests.interop.same_answers.scenes import Topic, create_topic
from tests.interop.same_answers.transactions import Producer, producer

STATES: Final = {
    "Empty": None,
    "Ongoing": None,
    "CompleteCommit": (3, True),
    "CompleteAbort": (3, False),
    "CompleteCommit in the new flow": (5, True),
    "CompleteAbort in the new flow": (5, False),
}
"""How each is reached from Ongoing."""


@pytest.fixture(scope="module")
def own_twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Brokers that may be restarted."""
    with start_twins(tmp_path_factory.mktemp("restart")) as twins:
        yield twins


def restart(pair: Pair, twins: Twins) -> None:
    pair.disconnect()
    twins.kohort.stop()
    twins.kafka.stop()
    twins.kafka.start()
    wait_ready(twins.kafka)
    twins.kohort.start()


def begin(pair: Pair, topic: Topic, group: Group, state: str) -> tuple[Producer, Value]:
    """An id in that state, and the epoch that its producer had before the end."""
    one = producer(pair)
    if state != "Empty":
        one.begun(topic)
        one.commit_offsets(group.id, topic, {0: 1}, 5)
    epoch = one.epoch
    if (how := STATES[state]) is not None:
        one.end(how[0], commit=how[1])
    return one, epoch


@pytest.mark.long
def test_restart(own_twins: Twins, subtests: pytest.Subtests) -> None:
    def report(name: str, text: str) -> None:
        with subtests.test(name):
            pytest.fail(text, pytrace=False)

    with Pair(own_twins, report) as pair:
        topic, group = create_topic(pair), Group(pair)
        made = {state: begin(pair, topic, group, state) for state in STATES}
        look(pair, group, topic)
        restart(pair, own_twins)
        group.wait_coordinated()
        for one, _ in made.values():
            one.wait_coordinated()
            one.describe()
        look(pair, group, topic)
        for state, (one, epoch) in made.items():
            if state == "Ongoing":
                one.send(topic, 1)
                one.end(5)
                one.describe()
            elif state.endswith("new flow"):
                one.end(5, commit="Commit" in state, epoch=epoch)
                differs = differences.LAST_EPOCH
                one.init(5, producer_id=one.pid, producer_epoch=epoch, differs=differs)
        look(pair, group, topic)


def look(pair: Pair, group: Group, topic: Topic) -> None:
    """Compare the group's positions, with undecided ones and without."""
    for requires_stable in (True, False):
        request = fetch_request(group, 8, {topic: [0]})
        request.require_stable = requires_stable
        pair.ask(request, 8)
