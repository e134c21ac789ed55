"""Access rules as librdkafka's admin client makes, finds and removes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.clients.confluent_client import admin_client

SETTINGS = {"authorizer.class.name": "kohort", "allow.everyone.if.no.acl.found": "true"}
TIMEOUT_S = 30


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminClient]:
    with BrokerThread(tmp_path, overrides=SETTINGS) as broker:
        yield admin_client(f"127.0.0.1:{broker.port}")


def binding(name: str, pattern: ResourcePatternType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, pattern, "User:a", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def wanted(name: str | None, pattern: ResourcePatternType) -> AclBindingFilter:
    # None is any text, which the types that come with the client do not know.
    of: Any = name
    anybody: Any = None
    return AclBindingFilter(
        ResourceType.ANY, of, pattern, anybody, anybody, AclOperation.ANY, AclPermissionType.ANY
    )


def test_rules_are_made_found_and_removed(admin: AdminClient) -> None:
    made = [
        binding("t", ResourcePatternType.LITERAL),
        binding("t-", ResourcePatternType.PREFIXED),
    ]
    for future in admin.create_acls(made).values():
        future.result(TIMEOUT_S)
    found = admin.describe_acls(wanted("t-1", ResourcePatternType.MATCH)).result(TIMEOUT_S)
    assert [one.name for one in found] == ["t-"]
    (removal,) = admin.delete_acls([wanted(None, ResourcePatternType.ANY)]).values()
    assert {one.name for one in removal.result(TIMEOUT_S)} == {"t", "t-"}
    assert admin.describe_acls(wanted(None, ResourcePatternType.ANY)).result(TIMEOUT_S) == []


def test_without_an_authorizer_they_are_told_so(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        admin = admin_client(f"127.0.0.1:{broker.port}")
        (made,) = admin.create_acls([binding("t", ResourcePatternType.LITERAL)]).values()
        with pytest.raises(KafkaException, match="No Authorizer is configured"):
            made.result(TIMEOUT_S)
