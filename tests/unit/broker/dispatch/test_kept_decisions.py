"""What a connection keeps of the authorizer's decisions, against the list of rules alone."""

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final, TypeAlias, cast

import pytest

from kohort.broker.core.security import authorizer as authorizers
from kohort.broker.core.security.acls import Operation, PatternType, Permission, ResourceType, Rule
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import Principal, Session
from kohort.broker.dispatch.access import Access
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.security.rules import AccessRules, Disk
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.errors import KafkaError
from kohort.protocol.framing import RequestHeader
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.core.security import oracle

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE = Operation.READ, Operation.WRITE
NAMES: Final = ("a", "ab", "b", "a" * 400)


@pytest.fixture
def access(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Access]:
    caplog.set_level(logging.CRITICAL, "kohort.authorizer")
    store = MetadataStore(tmp_path, new_cluster_id="decisions")
    rules = AccessRules(Authorizer(), store, cast("Disk", None), VirtualClock())
    yield Access(rules, VirtualClock(), {}, {})
    store.close()


def session(user: str, host: str) -> Session:
    return Session(Principal("User", user), host, "PLAINTEXT")


def context(access: Access, connection: ConnectionInfo) -> RequestContext:
    services = cast("BrokerServices", SimpleNamespace(access=access))
    return RequestContext(RequestHeader(0, 0, 0, "c"), connection, services)


def by_may(
    ctx: RequestContext, operation: Operation, kind: ResourceType, names: list[str]
) -> list[bool]:
    return [ctx.may(operation, kind, name) for name in names]


def by_require(
    ctx: RequestContext, operation: Operation, kind: ResourceType, names: list[str]
) -> list[bool]:
    found = []
    for name in names:
        try:
            ctx.require(operation, kind, name)
            found.append(True)
        except KafkaError:
            found.append(False)
    return found


Way: TypeAlias = Callable[[RequestContext, Operation, ResourceType, list[str]], list[bool]]
WAYS: Final[tuple[Way, ...]] = (by_may, by_require)
"""The ways to ask."""


def allowing(user: str, name: str = "a") -> Rule:
    return Rule(TOPIC, name, PatternType.LITERAL, f"User:{user}", "*", READ, Permission.ALLOW)


def test_what_is_kept_is_what_the_rules_say_whoever_asks_and_whatever_changes(
    access: Access, long_form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorizers, "ANSWERS_MAX", 12)
    authorizer = access.rules.authorizer
    for seed in range(2_000 if long_form else 60):
        choose = random.Random(seed).choice
        authorizer.change(removed=authorizer.rules())
        rules: list[Rule] = []
        connections = [ConnectionInfo("/h") for _ in range(3)]
        for _ in range(150):
            connection = choose(connections)
            what = choose(("ask",) * 12 + ("session", "remove", "add"))
            if what == "session":
                connection.session = session(choose(("u", "v")), choose(("h", "i")))
                continue
            if what == "remove" and rules:
                removed = choose(rules)
                rules.remove(removed)
                authorizer.change(removed=[removed])
                continue
            if what == "add":
                rule = Rule(
                    choose((TOPIC, GROUP)), choose(NAMES[:3]), choose(list(PatternType)),
                    choose(("User:u", "User:v", "User:*")), choose(("*", "h")),
                    choose((READ, WRITE)), choose((*[Permission.ALLOW] * 4, Permission.DENY)),
                )  # fmt: skip
                if rule not in rules:
                    rules.append(rule)
                    authorizer.change(added=[rule])
                continue
            operation, kind = choose((READ, WRITE)), choose((TOPIC, GROUP))
            asked = [choose(NAMES) for _ in range(choose((1, 1, 3)))]
            who, host = str(connection.session.principal), connection.session.host
            allowed = [
                oracle.allows(rules, who, host, operation, kind, name, otherwise=False)
                for name in asked
            ]
            ctx = context(access, connection)
            ask = choose(WAYS)
            assert ask(ctx, operation, kind, asked) == allowed, seed


def test_who_has_asked_once_is_not_asked_about_again(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = access.rules.authorizer
    authorizer.change(added=[allowing("u"), allowing("u", "b")])
    connection = ConnectionInfo("/h", session("u", "h"))
    ctx = context(access, connection)
    assert ctx.may(READ, TOPIC, "a")
    assert ctx.may(READ, TOPIC, "b")

    def ask(*_: object) -> bool:
        raise AssertionError("asked again")

    with monkeypatch.context() as patch:
        patch.setattr(Authorizer, "allows", ask)
        assert ctx.may(READ, TOPIC, "a")
        ctx.require(READ, TOPIC, "b")
    authorizer.change(removed=[allowing("u")])
    assert not ctx.may(READ, TOPIC, "a")
    assert ctx.may(READ, TOPIC, "b")


def test_where_every_decision_is_logged_none_is_left_out(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    access.rules.authorizer.change(added=[allowing("u")])
    ctx = context(access, ConnectionInfo("/h", session("u", "h")))
    with caplog.at_level(logging.DEBUG, "kohort.authorizer"):
        for _ in range(3):
            assert ctx.may(READ, TOPIC, "a")
            ctx.require(READ, TOPIC, "a")
    assert sum("is Allowed" in line for line in caplog.messages) == 6
