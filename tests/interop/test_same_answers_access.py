"""What somebody is told who may not do it, by a real Kafka and by this broker, field by field.

Clients that have different rights come from different addresses, by which the rules tell them
apart; no client needs a name for that.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from kohort.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.protocol.messages.find_coordinator import FindCoordinatorRequest
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.interop.conftest import start_twins
from tests.interop.same_answers import differences
from tests.interop.same_answers.differences import Difference
from tests.interop.same_answers.pair import Line, Pair, Twins
from tests.interop.same_answers.questions import questions
from tests.interop.same_answers.scenes import Topic, create_topic, fresh_name

pytestmark = pytest.mark.long

ADMIN, NOBODY = "127.0.0.1", "127.0.0.2"
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(2, 10)
DESCRIBE_CONFIGS = 10
THE_CLUSTER: Final = "kafka-cluster"

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Kafka's node asks itself as nobody, before there are rules.
    "allow.everyone.if.no.acl.found": "true",
}

MISSING: Final = Topic("no-such-topic", b"\x55" * 16)

SHORT_TEXT: Final = Difference(
    "the text tells no addresses and sessions; Kafka prints its own request",
    [("error_message", differences.TEXT, "Cluster authorization failed.")],
)
TOLD_OTHERWISE: Final = {
    "AlterPartitionReassignmentsRequest": SHORT_TEXT,
    "ListPartitionReassignmentsRequest": SHORT_TEXT,
    "UpdateFeaturesRequest": SHORT_TEXT,
    "DescribeAclsRequest": SHORT_TEXT,
    "CreateAclsRequest": SHORT_TEXT,
    "DeleteAclsRequest": SHORT_TEXT,
    "FetchRequest": differences.NOT_THERE,
    "DescribeQuorumRequest": differences.NO_METADATA_LOG,
}


def rule(kind: int, name: str, operation: int, *, host: str, prefixed: bool = False) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=4 if prefixed else 3,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=3,
    )


def create_rules(pair: Pair, rules: Sequence[AclCreation]) -> None:
    for answer in pair.ask(CreateAclsRequest(creations=list(rules)), 3):
        assert not any(result.error_code for result in answer.results), answer


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Both with an authorizer; the administrator may do everything, other users nothing."""
    with start_twins(tmp_path_factory.mktemp("secured"), SETTINGS) as twins:
        with Pair(twins, lambda name, text: pytest.fail(f"{name}: {text}")) as pair:
            everything = ((TOPIC, "*"), (GROUP, "*"), (TXN, "*"), (CLUSTER, THE_CLUSTER))
            create_rules(pair, [rule(kind, name, ALL, host=ADMIN) for kind, name in everything])
            # Topics of coordinators are made for whoever is first.
            for kind in (0, 1):
                pair.ask_until_equal(FindCoordinatorRequest(key="anything", key_type=kind), 3)
            # The id 0 is also what is told of a producer that there is not.
            pair.peek(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 0)
        yield twins


@pytest.fixture
def pair(secured: Twins, subtests: pytest.Subtests) -> Iterator[Pair]:
    def report(name: str, text: str) -> None:
        with subtests.test(name):
            pytest.fail(text, pytrace=False)

    with Pair(secured, report) as made:
        yield made


def ask_everything(pair: Pair, line: Line, topic: Topic) -> None:
    """Answers differ only as they are meant to, and where they are denials."""
    group, txn = fresh_name("group"), fresh_name("txn")
    for question in questions(topic, group, txn):
        for version in question.versions:
            pending = line.send(question.request, version)
            answers = pending.uncompared()
            told = TOLD_OTHERWISE.get(type(question.request).__name__)
            # The list of all has topics of others, too.
            about = (topic.name, "1") if question.name == "ListConfigResources" else ()
            pair.compare(question.request, version, answers, may_differ(told), about)


def may_differ(told: Difference | None) -> Difference | None:
    """The same difference where it need not show."""
    return None if told is None else told._replace(by_chance=True)


@pytest.mark.parametrize("exists", [True, False], ids=["there", "missing"])
def test_somebody_without_rights_is_told_the_same_of_everything(pair: Pair, exists: bool) -> None:
    topic = create_topic(pair) if exists else MISSING
    ask_everything(pair, pair.open(source=NOBODY), topic)


RIGHTS: Final = {
    "describes": [(TOPIC, DESCRIBE), (GROUP, DESCRIBE), (TXN, DESCRIBE), (CLUSTER, DESCRIBE)],
    "creates": [(TOPIC, CREATE), (CLUSTER, CREATE)],
    "of configs": [(TOPIC, DESCRIBE_CONFIGS), (CLUSTER, DESCRIBE_CONFIGS)],
    "of transactions": [(TXN, WRITE)],
    "of brokers": [(CLUSTER, CLUSTER_ACTION)],
}
"""What one address each may do; no two of them have the same."""


@pytest.mark.parametrize("name", RIGHTS)
def test_somebody_with_some_rights_is_told_the_same_of_everything(pair: Pair, name: str) -> None:
    host = f"127.0.0.{10 + list(RIGHTS).index(name)}"
    of_kind = {CLUSTER: THE_CLUSTER}
    create_rules(
        pair, [rule(kind, of_kind.get(kind, "*"), one, host=host) for kind, one in RIGHTS[name]]
    )
    ask_everything(pair, pair.open(source=host), create_topic(pair))
