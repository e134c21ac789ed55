"""Transactional ids get and lose their producer ids and epochs as they do at Kafka."""

import pytest

from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import Topic
from tests.interop.same_answers.transactions import (
    VERSIONS,
    Producer,
    describe_producers,
    producer,
    read,
    some_versions,
)
from tests.support import messages as m

ENDED = {
    "CompleteCommit in the old flow": (3, True),
    "CompleteAbort in the old flow": (3, False),
    "CompleteCommit in the new flow": (5, True),
    "CompleteAbort in the new flow": (5, False),
}
"""By the state that is reached: how a transaction is ended so."""
STATES = ("Empty", "Ongoing", *ENDED)
HIGHEST = 32766
"""The last epoch that a client may use."""


def reached(pair: Pair, topic: Topic, state: str) -> Producer:
    """A new id in that state. Its producer has the epoch before the end, as if told nothing."""
    made = producer(pair)
    if state != "Empty":
        made.begun(topic)
    if state in ENDED:
        version, commit = ENDED[state]
        epoch = made.epoch
        made.end(version, commit=commit)
        made.epoch = epoch
    return made


def test_where_an_id_is_coordinated(pair: Pair, some_id: Producer) -> None:
    del some_id
    for key in ("some id", ""):
        for version in range(1, 4):
            pair.ask(m.FindCoordinatorRequest(key=key, key_type=1), version)
    for keys in ([], ["one"], ["", "two", "two"]):
        for version in range(4, 7):
            pair.ask(m.FindCoordinatorRequest(coordinator_keys=keys, key_type=1), version)
    pair.ask(m.FindCoordinatorRequest(coordinator_keys=["x"], key_type=7), 4)


def test_ids_that_are_missing_or_empty(pair: Pair, some_id: Producer) -> None:
    for transactional_id in (None, "", "x", some_id.id):
        for pid, epoch in ((-1, 0), (7, -1), (-1, -2)):
            request = some_id.init_request(
                5, transactional_id=transactional_id, producer_id=pid, producer_epoch=epoch
            )
            for version in (3, 4, 5):
                pair.ask(request, version)
    for version in VERSIONS["init"]:
        for timeout_ms in (-1, 0, 1, 900_000, 900_001, 2**31 - 1):
            for transactional_id in (None, ""):
                request = m.InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
                )
                pair.ask(request, version)


def test_timeouts(pair: Pair, some_id: Producer) -> None:
    for version in VERSIONS["init"]:
        for timeout_ms in (-1, 0, 1, 900_000, 900_001, 2**31 - 1, 60_000):
            some_id.init(version, transaction_timeout_ms=timeout_ms)
            some_id.describe()


def test_a_new_id_ignores_what_its_producer_had(pair: Pair, some_id: Producer) -> None:
    del some_id
    for version in (3, 4, 5):
        new = Producer(pair)
        new.init(version, producer_id=4711, producer_epoch=17)
        new.describe()


@some_versions("init", 0, 3, 4)
def test_a_new_instance(pair: Pair, transaction_topic: Topic, version: int) -> None:
    for state in STATES:
        one = reached(pair, transaction_topic, state)
        one.init(version)
        one.describe()
        one.init(version)
        one.describe()


@pytest.mark.parametrize("version", [3, pytest.param(4, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("state", STATES)
def test_a_producer_that_says_who_it_is(
    pair: Pair, transaction_topic: Topic, state: str, version: int
) -> None:
    for off in (-1, 0, 1, 2):
        one = reached(pair, transaction_topic, state)
        one.init(version, producer_id=one.strange_pid, producer_epoch=one.epoch)
        one.describe()
        mine = {"producer_id": one.pid, "producer_epoch": one.off(off)}
        for _ in range(3):
            one.init(version, **mine)
            one.describe()
        one.init(version, producer_id=one.pid, producer_epoch=one.epoch)
        one.describe()


def test_an_instance_that_was_fenced(pair: Pair, transaction_topic: Topic) -> None:
    topic = transaction_topic
    for version in VERSIONS["init"]:
        one = reached(pair, topic, "Ongoing")
        old_epoch = one.epoch
        one.init(version)
        one.describe()
        describe_producers(pair, topic)
        for request_version in VERSIONS["produce"]:
            one.produce(topic, one.batch(1, epoch=old_epoch), request_version)
        for request_version in VERSIONS["add"]:
            one.add({topic: [0]}, request_version, epoch=old_epoch)
        for request_version in VERSIONS["add_offsets"]:
            one.add_offsets("some group", request_version, epoch=old_epoch)
        for request_version in VERSIONS["commit_offsets"]:
            one.commit_offsets("some group", topic, {0: 1}, request_version, epoch=old_epoch)
        for request_version in VERSIONS["end"]:
            one.end(request_version, epoch=one.off(-1) if request_version < 5 else old_epoch)
        one.describe()
    read(pair, topic)


@pytest.mark.parametrize("end_version", [3, pytest.param(4, marks=pytest.mark.long), 5])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_takes_too_long(
    pair: Pair, transaction_topic: Topic, end_version: int, *, commit: bool
) -> None:
    one = producer(pair)
    one.timeout_ms = 1_000
    one.init()
    one.add({transaction_topic: [0, 1]})
    one.send(transaction_topic)
    one.wait_state("CompleteAbort")
    one.describe()
    describe_producers(pair, transaction_topic, 0, 1)
    one.send(transaction_topic, 1)
    one.end(end_version, commit=commit)
    one.describe()


def test_a_producer_goes_on_after_a_timeout(
    pair: Pair, transaction_topic: Topic, *, long_form: bool
) -> None:
    for version in (3, 4, 5) if long_form else (5,):
        one = producer(pair)
        one.timeout_ms = 2_000
        one.init()
        one.begun(transaction_topic)
        one.wait_state("CompleteAbort")
        one.init(version, producer_id=one.pid, producer_epoch=one.epoch)
        one.describe()
        one.init(version, producer_id=one.pid, producer_epoch=one.epoch)
        one.describe()


@pytest.mark.long
def test_epochs_are_used_up(pair: Pair, transaction_topic: Topic) -> None:
    for state in ("Empty", "Ongoing", "CompleteCommit in the old flow"):
        for how in ("end", "init", "own init", "new init"):
            one = producer(pair)
            one.raise_epoch(HIGHEST)
            one.describe()
            topic = transaction_topic
            if state != "Empty":
                one.begun(topic)
            if state in ENDED:
                one.end(3)
            old = {"pid": one.pid, "epoch": one.epoch}
            mine = {"producer_id": one.pid, "producer_epoch": one.epoch}
            for _ in range(2):
                match how:
                    case "end":
                        one.end(5, commit=state == "Ongoing", **old)
                    case "init":
                        one.init(0)
                    case "own init":
                        one.init(5, **mine)
                    case _:
                        one.init(5)
                one.describe()
            describe_producers(pair, topic)
            one.init(5, **mine)
            one.describe()
            one.send(topic, 0, 12)
            one.describe()
