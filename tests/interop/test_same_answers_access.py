"""What somebody is told who may not do it, by a real Kafka and by this broker, field by field."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers import differences, share_differences
from tests.interop.same_answers.deliberate import ANY, CLOSED, TEXT, Difference
from tests.interop.same_answers.each import for_broker
from tests.interop.same_answers.pair import Line, Pair, Twins, opened
from tests.interop.same_answers.questions import NEW_TOPIC, batch, questions
from tests.interop.same_answers.scenes import END, Topic, create_topic, fresh_name, offsets_request
from tests.interop.same_answers.secured import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    NOBODY,
    READ,
    THE_CLUSTER,
    TOPIC,
    TXN,
    WRITE,
    as_super_user,
    create_rules,
    rule,
)
from tests.support import messages as m

OWN_METADATA_LOG: Final = Difference(
    "each Kafka has a metadata log of its own, and a port for it",
    [("high_watermark", ANY, ANY), ("log_end_offset", ANY, ANY), ("listeners.port", ANY, ANY)],
)
MISSING_ID: Final = b"\x55" * 16

SHORT_TEXT: Final = Difference(
    "the text tells no addresses and sessions; Kafka prints its own request",
    [("error_message", TEXT, "Cluster authorization failed.")],
)
TOLD_OTHERWISE: Final = {
    "AlterPartitionReassignments": SHORT_TEXT,
    "ListPartitionReassignments": SHORT_TEXT,
    "UpdateFeatures": SHORT_TEXT,
    "DescribeAcls": SHORT_TEXT,
    "CreateAcls": SHORT_TEXT,
    "DeleteAcls": SHORT_TEXT,
    "Fetch": differences.UNKNOWN_PARTITION,
    "DescribeTopicPartitions": Difference(
        "Kafka tells of topics that are denied in the order of a hash table",
        [("topics.name", ANY, ANY)],
    ),
    "DescribeQuorum": differences.NO_METADATA_LOG,
    # All topics that are missing have the same id.
    "ShareFetch": share_differences.NAMED_TWICE,
    "ShareAcknowledge": share_differences.NAMED_TWICE,
    "AlterShareGroupOffsets": share_differences.HIDDEN_TOPIC_ID,
}


@pytest.fixture
def pair(secured: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    with opened(secured, subtests) as made:
        yield made


def ask_everything(
    line: Line, topics: Sequence[Topic], groups: Sequence[str], txns: Sequence[str]
) -> None:
    """Answers differ only as they are meant to, and where they are denials."""
    for side in line.pair.sides:
        for topic in topics:
            side.facts.topic_names[for_broker(topic.id, side.name)] = topic.name
    # Lists of all have what other tests made, too.
    about = (*(topic.name for topic in topics), NEW_TOPIC, *groups, *txns, "1")
    for question in questions(topics, groups, txns):
        told = TOLD_OTHERWISE.get(question.name)
        if line.pair.are_both_kafka and question.name == "DescribeQuorum":
            told = OWN_METADATA_LOG
        of_all = question.is_of_all or question.name == "ListConfigResources"
        for version in question.versions:
            answers = line.send(question.request, version).uncompared()
            line.pair.compare(
                question.request, version, answers, may_differ(told), about if of_all else ()
            )


def may_differ(told: Difference | None) -> Difference | None:
    """The same difference where it need not show."""
    return None if told is None else told._replace(by_chance=True)


def ask_of_one(pair: Pair, line: Line, *, exists: bool) -> None:
    topic = create_topic(pair) if exists else Topic(fresh_name(), MISSING_ID)
    ask_everything(line, [topic], [fresh_name("group")], [fresh_name("txn")])


EITHER: Final = pytest.mark.parametrize("exists", [True, False], ids=["there", "missing"])


@EITHER
def test_somebody_without_rights_is_told_the_same_of_everything(pair: Pair, exists: bool) -> None:
    ask_of_one(pair, pair.open(source=NOBODY), exists=exists)


def test_a_super_user_is_told_the_same_of_everything(pair: Pair) -> None:
    ask_of_one(pair, pair.open(connect=as_super_user), exists=True)


RIGHTS: Final = {
    "describes": [(TOPIC, DESCRIBE), (GROUP, DESCRIBE), (TXN, DESCRIBE), (CLUSTER, DESCRIBE)],
    "creates": [(TOPIC, CREATE), (CLUSTER, CREATE)],
    "of configs": [(TOPIC, DESCRIBE_CONFIGS), (CLUSTER, DESCRIBE_CONFIGS)],
    "of transactions": [(TXN, WRITE)],
    "of brokers": [(CLUSTER, CLUSTER_ACTION)],
}
"""What one address each may do; no two of them have the same."""


@EITHER
@pytest.mark.parametrize("name", RIGHTS)
def test_somebody_with_some_rights_is_told_the_same_of_everything(
    pair: Pair, name: str, exists: bool
) -> None:
    host = f"127.0.0.{10 + list(RIGHTS).index(name)}"
    of_kind = {CLUSTER: THE_CLUSTER}
    create_rules(
        pair, [rule(kind, of_kind.get(kind, "*"), one, host=host) for kind, one in RIGHTS[name]]
    )
    ask_of_one(pair, pair.open(source=host), exists=exists)


def test_nothing_is_added_to_a_transaction_if_a_part_is_denied(pair: Pair) -> None:
    host, mine = "127.0.0.31", fresh_name("mine")
    rules = [rule(TOPIC, mine, WRITE, host=host), rule(TXN, mine, WRITE, host=host)]
    create_rules(pair, rules)
    topics = [create_topic(pair, name=mine), create_topic(pair)]
    line = pair.open(source=host)
    started = line.ask(
        m.InitProducerIdRequest(transactional_id=mine, transaction_timeout_ms=9_000), 4
    )
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=mine,
        v3_and_below_producer_id=started.each(lambda answer: answer.producer_id),
        v3_and_below_topics=[
            m.AddPartitionsToTxnTopic(name=topic.name, partitions=[0]) for topic in topics
        ],
    )
    for version in range(4):
        for answer in line.ask(request, version):
            told = {
                of.name: of.results_by_partition[0].partition_error_code
                for of in answer.results_by_topic_v3_and_below
            }
            assert told == {
                topics[0].name: ErrorCode.OPERATION_NOT_ATTEMPTED,
                topics[1].name: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }
    for answer in pair.ask(m.DescribeTransactionsRequest(transactional_ids=[mine]), 0):
        (state,) = answer.transaction_states
        assert (state.transaction_state, state.topics) == ("Empty", [])


@pytest.mark.parametrize("version", [12, 13])
def test_a_producer_that_wants_no_answer_is_cut_off_when_it_is_denied(
    pair: Pair, version: int
) -> None:
    host, mine = f"127.0.0.{40 + version}", fresh_name("mine")
    create_rules(pair, [rule(TOPIC, mine, WRITE, host=host)])
    allowed, denied = create_topic(pair, name=mine), create_topic(pair)

    def send(line: Line, *topics: Topic) -> None:
        one = m.PartitionProduceData(index=0, records=batch())
        data = [
            m.TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[one])
            for topic in topics
        ]
        request = m.ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=data)
        line.send(request, version).unanswered()

    def is_cut_off(line: Line) -> list[bool]:
        versions = line.send(m.ApiVersionsRequest(), 0).uncompared()
        return [answer == CLOSED for answer in versions]

    line = pair.open(source=host)
    send(line, allowed)
    assert is_cut_off(line) == [False, False]
    send(line, denied)
    assert is_cut_off(line) == [True, True]
    send(line, allowed, denied)
    assert is_cut_off(line) == [True, True]
    # What was allowed is there, both times.
    pair.ask_until_equal(offsets_request(allowed, END), 4)
    assert [end_of(pair, topic) for topic in (allowed, denied)] == [[2, 2], [0, 0]]


def end_of(pair: Pair, topic: Topic) -> list[int]:
    answers = pair.ask(offsets_request(topic, END), 4)
    return [answer.topics[0].partitions[0].offset for answer in answers]


OF_TOPICS: Final = (READ, WRITE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
"""All but CREATE: who asks for metadata would create what there is not."""


@pytest.mark.parametrize("order", [1, -1], ids=["mine first", "mine last"])
def test_what_is_ones_own_and_what_is_not_are_told_alike_of_in_one_request(
    pair: Pair, order: int
) -> None:
    host, mine = f"127.0.0.{21 + order}", fresh_name("mine")
    rules = [rule(TOPIC, mine, one, host=host, prefixed=True) for one in OF_TOPICS]
    rules += [rule(kind, mine, ALL, host=host, prefixed=True) for kind in (GROUP, TXN)]
    create_rules(pair, [*rules, rule(TOPIC, NEW_TOPIC, CREATE, host=host)])
    topics = [
        create_topic(pair, name=f"{mine}-a"),
        create_topic(pair),
        Topic(f"{mine}-missing", MISSING_ID),
        Topic(fresh_name(), b"\x56" * 16),
        create_topic(pair, name=f"{mine}-b"),
    ]
    groups = [f"{mine}-group", fresh_name("group"), f"{mine}-other-group"]
    txns = [f"{mine}-txn", fresh_name("txn")]
    ask_everything(pair.open(source=host), topics[::order], groups[::order], txns[::order])
