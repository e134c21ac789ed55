"""Random rules on a real Kafka and on this broker, and random questions to both: who is denied what
is the same.

Users prove who they are by PLAIN and come from different addresses. Rules are set over the wire,
and nothing is known of a decision but what a client sees: codes of denials, and the bit fields of
what it may do (KIP-430).
"""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES, Struct, schema_of
from tests.interop.same_answers import scenes
from tests.interop.same_answers.each import Value, for_broker
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair, Side, Twins, wait_ready
from tests.interop.same_answers.questions import questions
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.network.sasl import log_in
from tests.support.network.wire import RawClient

pytestmark = pytest.mark.long

DECISIONS: Final = 20_000
RULES_AT_ONCE: Final = 40
ASKERS_AT_ONCE: Final = 4

USERS: Final = ("u", "v", "w")
SOURCES: Final = ("127.0.0.1", "127.0.0.2")
NAMES: Final = ("a", "ab", "abc", "abd", "b", "ba")
PATTERNS: Final = (*NAMES, "*", "c")
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
OPERATIONS: Final = range(2, 16)
THE_CLUSTER: Final = "kafka-cluster"

DENIALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))
BITS: Final = {
    "topic_authorized_operations": 8,
    "cluster_authorized_operations": 7,
    "authorized_operations": 5,
}
"""Fields that say which of so many operations are allowed."""
LABELS: Final = ("name", "group_id", "topic", "key", "transactional_id", "resource_name")
NOTHING_SAID: Final = -(2**31)

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Asker:
    """Somebody's connections to both brokers."""

    def __init__(self, ports: dict[str, int], user: str, source: str) -> None:
        self._clients = {name: logged_in(port, user, source=source) for name, port in ports.items()}

    def ask(self, side: Side, request: Value, version: int) -> Value:
        """The answer, decoded."""
        key = schema_of(type(request)).key
        assert key is not None
        return self._clients[side.name].call(
            for_broker(request, side.name), version, RESPONSES[key]
        )

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def logged_in(port: int, user: str, *, source: str) -> RawClient:
    """A connection of a user, whose password is the name."""
    client = RawClient(port, source=source)
    answer = log_in(client, user, user)
    assert answer.error_code == ErrorCode.NONE, answer
    return client


class Secured:
    """Both brokers with an authorizer; who comes without a name may do everything."""

    def __init__(self, twins: Twins, ports: dict[str, int]) -> None:
        self.pair = Pair(twins, lambda name, text: pytest.fail(f"{name}: {text}"))
        self.ports = ports
        self.topics = [scenes.create_topic(self.pair, name=name) for name in NAMES]
        for kind in (0, 1):
            # Kafka creates the coordinators' topics on their first use.
            self.pair.ask_until_equal(m.FindCoordinatorRequest(key="anything", key_type=kind), 3)
        self.rules: list[m.AclCreation] = []

    def set_rules(self, rules: Sequence[m.AclCreation]) -> None:
        """Replace all rules, and wait until both go by them."""
        everything = m.DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
            principal_filter=None, host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        for side in self.pair.sides:
            with RawClient(side.port) as client:
                gone = client.call(
                    m.DeleteAclsRequest(filters=[everything]), 3, m.DeleteAclsResponse
                )
                assert gone.filter_results[0].error_code == ErrorCode.NONE
                request = m.CreateAclsRequest(creations=list(rules))
                made = client.call(request, 3, m.CreateAclsResponse)
                assert not any(one.error_code for one in made.results), made
                wait_for_rules(client, {key(rule) for rule in rules})


def key(rule: m.AclCreation) -> tuple[object, ...]:
    return (
        *(rule.resource_type, rule.resource_name, rule.resource_pattern_type),
        *(rule.principal, rule.host, rule.operation, rule.permission_type),
    )


def wait_for_rules(client: RawClient, wanted: set[tuple[object, ...]]) -> None:
    """Kafka's controller answers before its broker knows."""
    request = m.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while True:
        answer = client.call(request, 3, m.DescribeAclsResponse)
        found = {
            (
                *(of.resource_type, of.resource_name, of.pattern_type),
                *(one.principal, one.host, one.operation, one.permission_type),
            )
            for of in answer.resources
            for one in of.acls
        }
        if found == wanted:
            return
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.01)


def random_rule(choose: random.Random) -> m.AclCreation:
    kind = choose.choice((TOPIC, TOPIC, GROUP, TXN, CLUSTER))
    return m.AclCreation(
        resource_type=kind,
        resource_name=THE_CLUSTER if kind == CLUSTER else choose.choice(PATTERNS),
        resource_pattern_type=LITERAL if kind == CLUSTER else choose.choice((LITERAL, PREFIXED)),
        principal=f"User:{choose.choice((*USERS, '*'))}",
        host=choose.choice(("*", "*", *SOURCES)),
        operation=choose.choice(OPERATIONS),
        permission_type=choose.choice((ALLOW, ALLOW, DENY)),
    )


@pytest.fixture(params=[False, True], ids=["closed", "open to what no rule is about"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    settings = {
        **TWIN_SETTINGS,
        "listener.name.named.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.named.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": str(request.param).lower(),
    }
    kafka = KafkaServer(tmp_path / "kafka", overrides=settings)
    kohort = KohortServer(tmp_path / "kohort", overrides=settings)
    ports = {
        "kafka": add_listener(kafka.properties),
        "kohort": add_listener(kohort.overrides),
    }
    with kafka, kohort:
        wait_ready(kafka)
        both = Secured(Twins(kafka, kohort), ports)
        yield both
        both.pair.disconnect()


def add_listener(settings: dict[str, str]) -> int:
    """The port of one more, whose clients have names."""
    port = free_port()
    protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    settings["listener.security.protocol.map"] = f"{protocols},NAMED:SASL_PLAINTEXT"
    settings["listeners"] += f",NAMED://127.0.0.1:{port}"
    if "advertised.listeners" in settings:
        settings["advertised.listeners"] += f",NAMED://127.0.0.1:{port}"
    return port


def decisions(answer: object, path: str = "") -> Iterator[tuple[str, int]]:
    """What an answer says of rights, by where: codes of denials, and fields of bits."""
    if isinstance(answer, list):
        for number, one in enumerate(answer):
            yield from decisions(one, f"{path}[{label(one) or number}]")
    elif isinstance(answer, Struct):
        for field in schema_of(type(answer)).fields:
            value, there = getattr(answer, field.name), f"{path}.{field.name}"
            if field.name.endswith("error_code"):
                yield there, value if value in DENIALS else 0
            elif field.name in BITS:
                yield there, value
            else:
                yield from decisions(value, there)


def label(one: object) -> str | None:
    """By what an element of a list is known; Kafka's are in the order of a hash table."""
    return next((getattr(one, name) for name in LABELS if hasattr(one, name)), None)


def count(said: Sequence[tuple[str, int]]) -> int:
    """How many decisions that were."""
    return sum(
        0 if value == NOTHING_SAID else BITS.get(path.rpartition(".")[2], 1) for path, value in said
    )


def random_questions(choose: random.Random, topics: Sequence[Topic]) -> Iterator[tuple[Value, int]]:
    """Requests, each in one of its versions, about names that rules are about."""
    metadata = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=topic.name) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    yield metadata, 10
    yield m.DescribeGroupsRequest(groups=list(NAMES), include_authorized_operations=True), 5
    yield m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4
    asked = list(questions([choose.choice(topics)], [choose.choice(NAMES)], [choose.choice(NAMES)]))
    for question in choose.sample(asked, 25):
        # Those who ask write no rules, keep all topics and create no groups, and what they may
        # fetch need not have come. Lists of all have a Kafka's own topics.
        changes = question.name in {
            "CreateAcls", "DeleteAcls", "DeleteTopics", "AlterShareGroupOffsets",
        }  # fmt: skip
        is_fetch = question.name in {"Fetch", "ShareFetch"}
        if not changes and not is_fetch and not question.is_of_all:
            yield question.request, choose.choice(question.versions)


def test_random_questions_are_decided_alike(secured: Secured) -> None:
    made, seed = 0, 0
    while made < DECISIONS // 2:
        seed += 1
        choose = random.Random(seed)
        rules = [random_rule(choose) for _ in range(choose.randrange(RULES_AT_ONCE))]
        secured.set_rules(list({key(rule): rule for rule in rules}.values()))
        for _ in range(ASKERS_AT_ONCE):
            user, source = choose.choice(USERS), choose.choice(SOURCES)
            asker = Asker(secured.ports, user, source)
            for request, version in random_questions(choose, secured.topics):
                kafka, kohort = (
                    sorted(decisions(asker.ask(side, request, version)))
                    for side in secured.pair.sides
                )
                assert kohort == kafka, (seed, user, source, request, version, rules)
                made += count(kafka)
            asker.close()
    print(f"{made} decisions alike, by {seed} sets of rules")
