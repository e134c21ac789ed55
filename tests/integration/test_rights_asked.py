"""The rights that each form of each request asks the authorizer for: a right that is too weak, of
another resource, or missing in one version, shows here without a Kafka beside it.
"""

from pathlib import Path
from typing import Final

from kohort.broker.core.security.acls import Operation, PatternType, Permission, ResourceType, Rule
from kohort.broker.handlers import load_handlers
from tests.integration.test_access import (
    ABOUT_THE_CONNECTION,
    ADMIN,
    NOBODY,
    SETTINGS,
    authorizer,
    close_to_others,
)
from tests.interop.same_answers.rights import (
    OF_KOHORT,
    RIGHTS,
    Place,
    Right,
    creation,
    expected,
    forms,
    make_scene,
)
from tests.interop.same_answers.scenes import Topic
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.wire import RawClient

SEEING: Final = "127.0.0.4"
SEES_TOPICS: Final = Rule(
    ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", SEEING, Operation.DESCRIBE,
    Permission.ALLOW,
)  # fmt: skip


def asked_for(broker: BrokerThread, request: object, version: int, source: str) -> frozenset[Right]:
    """The rights that the broker asks for when it serves a request from this address."""
    rules = authorizer(broker)
    # No rule changes, and the remembered decisions are dropped.
    broker.call(rules.change)
    with RawClient(broker.port, source=source) as client:
        client.ask(request, version)
    remembered = broker.call(lambda: dict(rules._decisions))
    return frozenset(
        right
        for (_, host), decisions in remembered.items()
        if host == source
        for right in (*decisions.allowed, *decisions.denied)
    )


def test_every_api_is_in_the_table() -> None:
    served = {api.name for api in load_handlers().values()}
    assert {name.partition(" ")[0] for name in RIGHTS} == served - ABOUT_THE_CONNECTION


def test_every_form_of_a_request_checks_exactly_its_rights(tmp_path: Path) -> None:
    found: dict[Place, frozenset[Right]] = {}
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        broker.call(lambda: close_to_others(authorizer(broker)))
        with RawClient(broker.port, source=ADMIN) as admin:
            topic = Topic("t", make_scene(admin, "t", "g", "x"))
            for question in forms(topic, "g", "x"):
                if question.name == "CreateAcls":
                    # A rule that is new would drop the remembered decisions.
                    admin.ask(question.request, question.versions[0])
        # First as the principal whose requests change nothing.
        for principal, source in (("nobody", NOBODY), ("admin", ADMIN)):
            for question in forms(topic, "g", "x"):
                for version in question.versions:
                    found[question.title, version, principal] = asked_for(
                        broker, question.request, version, source
                    )
        broker.call(lambda: authorizer(broker).change(added=[SEES_TOPICS]))
        for principal, source in (("nobody", SEEING), ("admin", ADMIN)):
            question = creation(f"new-{principal}")
            (version,) = question.versions
            found[question.title, version, principal] = asked_for(
                broker, question.request, version, source
            )
    assert found == expected({**RIGHTS, **OF_KOHORT})
