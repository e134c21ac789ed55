"""Transactions end as they do at Kafka, whichever client asks for it and however often."""

import pytest

from tests.interop.same_answers import differences
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import (
    NOWHERE,
    Topic,
    create_topic,
    delete_topic,
)
from tests.interop.same_answers.transactions import (
    VERSIONS,
    Producer,
    describe_producers,
    producer,
    read,
    some_versions,
    write_markers,
)

ENDS = {
    "CompleteCommit in the old flow": (3, True),
    "CompleteAbort in the old flow": (3, False),
    "CompleteCommit in the new flow": (5, True),
    "CompleteAbort in the new flow": (5, False),
}
"""By the state that is reached: how a transaction is ended so."""
STATES = ("Empty", "Empty again", "Ongoing", "Ongoing in the new flow", *ENDS)
TWICE = 2


def reached(pair: Pair, topic: Topic, state: str) -> Producer:
    """A new id in that state, whose producer knows its epoch."""
    made = producer(pair)
    match state:
        case "Empty":
            pass
        case "Empty again":
            made.init()
        case "Ongoing in the new flow":
            made.send(topic, 0, 12)
        case _:
            made.begun(topic)
    if state in ENDS:
        version, commit = ENDS[state]
        made.end(version, commit=commit)
    return made


@some_versions("end", 1, 2, 5)
@pytest.mark.parametrize("state", STATES)
def test_every_way_to_end(
    pair: Pair, transaction_topic: Topic, state: str, version: int, *, long_form: bool
) -> None:
    for commit in (True, False):
        for off in (-2, -1, 0, 1) if long_form or version in {1, 5} else (0,):
            one = reached(pair, transaction_topic, state)
            epoch = one.off(off)
            if off == 0:
                one.end(version, commit=commit, pid=one.strange_pid)
            for _ in range(TWICE):
                one.end(version, commit=commit, epoch=epoch)
            one.end(version, commit=not commit, epoch=epoch)
            one.describe()
    read(pair, transaction_topic)


def test_ids_that_are_unknown_or_empty(pair: Pair, some_id: Producer) -> None:
    for name in ("no such id", ""):
        some_id.id = name
        for version in VERSIONS["end"]:
            pair.ask(some_id.end_request(commit=True), version)


def test_a_topic_that_is_gone_is_no_hindrance(pair: Pair) -> None:
    for version in (3, 5):
        topic = create_topic(pair)
        one = producer(pair).begun(topic)
        delete_topic(pair, topic)
        one.end(version)
        one.check_state("CompleteCommit")
        topic = create_topic(pair, name=topic.name)
        describe_producers(pair, topic)


def test_a_new_topic_of_the_same_name_gets_the_marker(pair: Pair) -> None:
    topic = create_topic(pair)
    one = producer(pair).begun(topic)
    delete_topic(pair, topic)
    topic = create_topic(pair, name=topic.name)
    one.end(3)
    describe_producers(pair, topic)
    read(pair, topic, isolation_level=0)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("transaction_version", [0, 1, 2, 5])
def test_markers_that_are_written_past_the_coordinator(
    pair: Pair, transaction_version: int, *, commit: bool
) -> None:
    for version in (1, 2):
        topic = create_topic(pair)
        for off in (-1, 0, 1):
            one = producer(pair)
            one.init()
            one.begun(topic)
            for step in (off, off, off + 1, -1):
                marker = one.marker(
                    {topic: [0]},
                    commit=commit,
                    epoch=one.off(step),
                    transaction_version=transaction_version,
                )
                pair.ask(write_markers(marker), version)
                describe_producers(pair, topic)
            one.send(topic, 1)
        for isolation_level in (0, 1):
            read(pair, topic, isolation_level=isolation_level)


def test_markers_for_an_unknown_producer_and_partition(
    pair: Pair, transaction_topic: Topic
) -> None:
    one = producer(pair)
    nowhere, somewhere = {NOWHERE: [0, 1]}, {transaction_topic: [0, 2, 7]}
    for version in (1, 2):
        pair.ask(write_markers(), version)
        pair.ask(write_markers(one.marker({})), version)
        pair.ask(write_markers(one.marker(nowhere), one.marker(somewhere)), version)
        strange = one.marker(somewhere, pid=one.strange_pid, epoch=3)
        pair.ask(write_markers(strange, one.marker(somewhere)), version)
    describe_producers(pair, transaction_topic, 0, 1, 2)


def test_markers_of_an_old_coordinator(pair: Pair) -> None:
    topic = create_topic(pair)
    one = producer(pair)
    for coordinator_epoch in (3, 3, 2, 4, 0):
        marker = one.marker({topic: [0]}, coordinator_epoch=coordinator_epoch)
        pair.ask(write_markers(marker), 2)
        describe_producers(pair, topic)
    read(pair, topic, isolation_level=0)


def test_markers_with_numbers_below_zero(pair: Pair, transaction_topic: Topic) -> None:
    one = producer(pair)
    for epoch, version in ((-1, 0), (0, -1)):
        marker = one.marker({transaction_topic: [0]}, epoch=epoch, transaction_version=version)
        pair.ask(write_markers(marker), 2, differs=differences.NEGATIVE_MARKER_EPOCH)


def test_a_marker_that_came_too_early_holds_up_only_kafka(pair: Pair) -> None:
    topic = create_topic(pair, partitions=2)
    for version in (3, 5):
        one = producer(pair).begun(topic)
        marker = one.marker({topic: [0]}, epoch=one.off(5), transaction_version=2)
        pair.ask(write_markers(marker), 2)
        pair.ask(one.end_request(commit=True), version)
        one.describe(differs=differences.SUPERSEDED_MARKER)
        pair.ask(one.init_request(5), 5, differs=differences.SUPERSEDED_MARKER)
