"""The rights that a real Kafka asks its authorizer for: the truth behind the table that Kohort is
tested with (tests/integration/test_rights_asked.py).
"""

import re
from typing import Final

import pytest

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import for_broker
from tests.interop.same_answers.pair import Pair, Twins
from tests.interop.same_answers.questions import Question
from tests.interop.same_answers.rights import (
    Place,
    Right,
    creation,
    expected,
    forms,
    make_scene,
)
from tests.interop.same_answers.scenes import Topic, fresh_name
from tests.interop.same_answers.secured import (
    ADMIN,
    DESCRIBE,
    NOBODY,
    TOPIC,
    create_rules,
    rule,
)
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

SEEING: Final = "127.0.0.60"
ASKED: Final = re.compile(
    r"operation = (\w+) from host = (\S+) on resource = (\w+):.* for request = (\w+) with"
)


class AuthorizerLog:
    """The rights in the log of a Kafka."""

    def __init__(self, twins: Twins) -> None:
        self._port = twins.kafka.port
        self._file = twins.kafka.log_file

    def asked_for(self, question: Question, version: int, source: str) -> frozenset[Right]:
        """Kafka logs a right before it answers the request that needs it."""
        begin = self._file.stat().st_size
        with RawClient(self._port, source=source) as client:
            client.ask(for_broker(question.request, "kafka"), version)
        with self._file.open() as log:
            log.seek(begin)
            asked = ASKED.findall(log.read())
        return frozenset(
            (Operation[operation], kind_of(kind))
            for operation, host, kind, request in asked
            if (host, request) == (source, question.name)
        )


def kind_of(name: str) -> ResourceType:
    """Its name in the log is in camel case."""
    return ResourceType[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]


def sees_topics(client: RawClient) -> bool:
    named = [m.MetadataRequestTopic(name=fresh_name())]
    request = m.MetadataRequest(topics=named, allow_auto_topic_creation=False)
    (topic,) = client.call(request, 4, m.MetadataResponse).topics
    return topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_kafka_checks_the_rights_in_the_table(secured: Twins) -> None:
    found: dict[Place, frozenset[Right]] = {}
    log = AuthorizerLog(secured)
    name, group, txn = fresh_name(), fresh_name("group"), fresh_name("txn")
    with RawClient(secured.kafka.port, source=ADMIN) as admin:
        topic = Topic(name, make_scene(admin, name, group, txn))
    with Pair(secured, lambda name, text: pytest.fail(f"{name}: {text}")) as pair:
        create_rules(pair, [rule(TOPIC, "*", DESCRIBE, host=SEEING)])
        for question in forms(topic, group, txn):
            if question.name == "CreateAcls":
                # Other tests compare the rules of both brokers.
                pair.ask(question.request, question.versions[0])
    for principal, source in (("nobody", NOBODY), ("admin", ADMIN)):
        for question in forms(topic, group, txn):
            for version in question.versions:
                found[question.title, version, principal] = log.asked_for(question, version, source)
    with RawClient(secured.kafka.port, source=SEEING) as seeing:
        wait_until(lambda: sees_topics(seeing), "the broker knows the new rule")
    for principal, source in (("nobody", SEEING), ("admin", ADMIN)):
        question = creation(fresh_name("new"))
        (version,) = question.versions
        found[question.title, version, principal] = log.asked_for(question, version, source)
    assert found == expected()
