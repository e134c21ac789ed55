"""Answers to a client without rights, about what is there and about what is not: on a real Kafka
and on this broker they are the same bytes but for the name that was asked for.

Ids of topics are no secret: requests by id are about the one id both times.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.interop.same_answers.each import Value, for_broker
from tests.interop.same_answers.pair import Pair, Twins, opened
from tests.interop.same_answers.questions import Question, questions
from tests.interop.same_answers.scenes import Topic, create_topic, fresh_name
from tests.interop.same_answers.secured import NOBODY, as_super_user
from tests.support import messages as m
from tests.support.brokers.secure_kafka import USER
from tests.support.network.wire import RawClient


@pytest.fixture
def pair(secured: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    with opened(secured, subtests) as made:
        yield made


class Names(NamedTuple):
    """One of each kind."""

    topic: str
    group: str
    txn: str
    user: str

    def questions(self, topic_id: Value) -> list[Question]:
        topic = Topic(self.topic, topic_id)
        return list(questions([topic], [self.group], [self.txn], self.user))


MISSING_USER: Final = "nosuc"
_REQUEST_OF_KAFKA: Final = re.compile(rb"..Request Request\(processor=.* needs ", re.DOTALL)
"""The begin of Kafka's texts about the cluster, with their length: they print the request, and with
it where in memory its session is."""


def made_known(pair: Pair) -> tuple[Names, Value]:
    """Names that both brokers know, all of their kinds; and the id of the topic."""
    topic, group, txn = create_topic(pair), fresh_name("group"), fresh_name("txn")
    committed = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    pair.ask(
        m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[m.OffsetCommitRequestTopic(name=topic.name, partitions=[committed])],
        ),
        8,
    )
    pair.ask(m.InitProducerIdRequest(transactional_id=txn, transaction_timeout_ms=60_000), 4)
    return Names(topic.name, group, txn, USER), topic.id


def test_what_is_there_is_denied_in_the_same_bytes_as_what_is_not(pair: Pair) -> None:
    there, topic_id = made_known(pair)
    missing = Names(fresh_name(), fresh_name("group"), fresh_name("txn"), MISSING_USER)
    assert [len(name) for name in there] == [len(name) for name in missing]
    of_both = zip(there.questions(topic_id), missing.questions(topic_id), strict=True)
    told = {side.name: 0 for side in pair.sides}
    clients = {side.name: RawClient(side.port, source=NOBODY) for side in pair.sides}
    for one, other in of_both:
        for version in one.versions:
            for side in pair.sides:
                answers = [
                    _REQUEST_OF_KAFKA.sub(
                        b"", clients[side.name].ask(for_broker(of.request, side.name), version)
                    )
                    for of in (one, other)
                ]
                renamed = answers[0]
                for known, unknown in zip(there, missing, strict=True):
                    renamed = renamed.replace(known.encode(), unknown.encode())
                told[side.name] += 1
                if renamed != answers[1]:
                    text = f"  {side.name}:\n  {answers[0]!r}\n  {answers[1]!r}"
                    pair.fail(other.request, version, text)
    for client in clients.values():
        client.close()
    print(f"{told} pairs of answers")


def test_somebody_who_may_see_it_is_told_which_of_them_is_there(pair: Pair) -> None:
    """The names of the test above do differ in what is to be told of them."""
    there, topic_id = made_known(pair)
    missing = Names(fresh_name(), fresh_name("group"), fresh_name("txn"), MISSING_USER)
    line = pair.open(connect=as_super_user)
    for name in ("ListOffsets", "DescribeGroups", "DescribeTransactions", "OffsetFetch"):
        one, other = (
            next(one for one in of.questions(topic_id) if one.name == name)
            for of in (there, missing)
        )
        known, unknown = (
            line.send(of.request, of.versions[-1]).uncompared() for of in (one, other)
        )
        for answer, different in zip(known, unknown, strict=True):
            assert repr(answer) != repr(different)
