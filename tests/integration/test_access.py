"""Rights in a whole broker: who is denied, and what a restart remembers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.app import StartError
from kohort.broker.core.security.acls import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.handlers import load_handlers
from kohort.broker.topics.names import REBALANCE_HISTORY
from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.questions import questions
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.groups.raw_members import RawMember
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

SETTINGS = {
    "authorizer.class.name": "kohort",
    "super.users": "User:root",
    # A broker that cannot name its clients starts only if anonymous clients have some permission.
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ADMIN, NOBODY = "127.0.0.1", "127.0.0.3"
EVERYTHING = [
    Rule(kind, name, PatternType.LITERAL, "User:*", ADMIN, Operation.ALL, Permission.ALLOW)
    for kind, name in (
        (ResourceType.TOPIC, "*"),
        (ResourceType.GROUP, "*"),
        (ResourceType.TRANSACTIONAL_ID, "*"),
        (ResourceType.CLUSTER, CLUSTER_NAME),
    )
]
ABOUT_THE_CONNECTION = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
"""APIs that do not look at rights."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, overrides=SETTINGS) as made:
        made.call(lambda: close_to_others(authorizer(made)))
        yield made


def authorizer(broker: BrokerThread) -> Authorizer:
    access = broker.broker.services.access
    assert access is not None
    return access.rules.authorizer


def close_to_others(authorizer: Authorizer) -> None:
    """The administrator's address may do everything, others what is allowed."""
    authorizer.allow_everyone_if_no_acl_found = False
    authorizer.change(added=EVERYTHING)


def test_an_authorizer_that_would_let_no_one_in_is_refused(tmp_path: Path) -> None:
    closed = {**SETTINGS, "allow.everyone.if.no.acl.found": "false"}
    with (
        pytest.raises(StartError, match="User:ANONYMOUS"),
        BrokerThread(tmp_path, overrides=closed),
    ):
        pass
    with BrokerThread(tmp_path, overrides={**closed, "super.users": "User:ANONYMOUS"}):
        pass
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
    with BrokerThread(tmp_path, overrides={**closed, **listeners}):
        pass


@pytest.mark.parametrize(
    ("change", "is_warned"),
    [
        ({}, True),
        ({"super.users": "User:root"}, False),
        ({"allow.everyone.if.no.acl.found": "true"}, False),
    ],
)
def test_a_start_warns_that_no_client_could_make_the_first_rule(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, str], is_warned: bool
) -> None:
    own = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "kohort",
    }
    with BrokerThread(tmp_path, overrides={**own, **change}):
        pass
    assert ("there are neither super.users nor rules" in caplog.text) == is_warned


def test_with_tls_clients_have_names_only_if_they_show_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    closed = {
        **SETTINGS,
        "allow.everyone.if.no.acl.found": "false",
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "ssl.truststore.location": str(authority.certificate),
    }
    with (
        pytest.raises(StartError, match=r"set ssl\.client\.auth of one with SSL"),
        BrokerThread(tmp_path / "data", overrides=closed),
    ):
        pass
    own = {"listener.name.ssl.ssl.client.auth": "requested"}
    with BrokerThread(tmp_path / "data", overrides={**closed, **own}):
        pass


def creation(principal: str, operation: Operation, name: str, **other: int) -> m.AclCreation:
    values = {
        "resource_type": ResourceType.TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "permission_type": Permission.ALLOW,
        **other,
    }
    return m.AclCreation(
        resource_name=name, principal=principal, host="*", operation=operation, **values
    )


def create(client: RawClient, *creations: m.AclCreation) -> list[int]:
    answer = client.call(m.CreateAclsRequest(creations=list(creations)), 3, m.CreateAclsResponse)
    return [result.error_code for result in answer.results]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": 99}, "Invalid ResourceType 99"),
        ({"resource_pattern_type": 2}, "Invalid PatternType 2"),
        ({"operation": 1}, "Invalid Operation 1"),
        ({"permission_type": 0}, "Invalid Permission 0"),
    ],
    ids=["no name", "another cluster", "type", "pattern", "operation", "permission"],
)
def test_a_rule_that_cannot_be_is_refused(
    broker: BrokerThread, change: dict[str, int], text: str
) -> None:
    name = str(change.pop("name", "t"))
    made = creation("User:a", Operation.READ, name)
    for field, value in change.items():
        setattr(made, field, value)
    with RawClient(broker.port) as client:
        request = m.CreateAclsRequest(creations=[made])
        (result,) = client.call(request, 3, m.CreateAclsResponse).results
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, text)


def test_rules_are_there_after_a_restart(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        broker.call(lambda: close_to_others(authorizer(broker)))
        with RawClient(broker.port) as client:
            rules = [creation("User:a", Operation.READ, f"t\n\u00e4{n}") for n in range(3)]
            assert create(client, *rules) == [0, 0, 0]
            remove = m.DeleteAclsFilter(
                resource_type_filter=1,
                resource_name_filter="t\n\u00e41",
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            client.call(m.DeleteAclsRequest(filters=[remove]), 3, m.DeleteAclsResponse)
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        names = broker.call(lambda: [rule.resource_name for rule in authorizer(broker).rules()])
        assert names == ["t\n\u00e40", "t\n\u00e42"]


def test_every_api_is_asked_about_in_its_lowest_and_highest_version() -> None:
    asked: dict[str, set[int]] = {}
    for question in questions([Topic("t", b"\x55" * 16)], ["g"], ["x"]):
        asked.setdefault(question.name, set()).update(question.versions)
    for api in load_handlers().values():
        if api.name not in ABOUT_THE_CONNECTION:
            assert {api.versions.low, api.versions.high} <= asked.get(api.name, set()), api.name


def test_the_rebalance_history_is_shown_to_who_may_read_its_topic_and_to_no_one_else(
    broker: BrokerThread,
) -> None:
    member = RawMember(broker.port, "orders")
    assert member.join().answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert member.join().answer().error_code == ErrorCode.NONE
    assert member.sync({member.member_id: b""}).error_code == ErrorCode.NONE
    with (
        RawClient(broker.port, source=ADMIN) as admin,
        RawClient(broker.port, source=NOBODY) as other,
    ):
        wait_until(lambda: b"orders" in history(admin)[1], "the rebalance is recorded")
        denied = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
        assert history(other) == denied
        for operation, name, pattern in (
            (Operation.DESCRIBE, REBALANCE_HISTORY, PatternType.LITERAL),
            (Operation.WRITE, REBALANCE_HISTORY, PatternType.LITERAL),
            (Operation.READ, "orders", PatternType.PREFIXED),
        ):
            rule = creation("User:ANONYMOUS", operation, name, resource_pattern_type=pattern)
            assert create(admin, rule) == [0]
            assert history(other) == denied
        rule = creation("User:ANONYMOUS", Operation.READ, REBALANCE_HISTORY)
        assert create(admin, rule) == [0]
        code, records = history(other)
        assert code == ErrorCode.NONE
        assert b"orders" in records


def history(client: RawClient) -> tuple[int, bytes]:
    """Error and records of a Fetch from the begin of the rebalance history."""
    request = fetch_request(REBALANCE_HISTORY)
    answer = client.call(request, 11, m.FetchResponse).responses[0].partitions[0]
    return answer.error_code, bytes(answer.records or b"")
