"""Access rules that are removed by several filters, or by several requests."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker.core.security.acls import (
    ANY,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleFilter,
)
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.security import rules as module
from kohort.broker.security.rules import AccessRules, TooManyRulesError
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.testing.virtual_clock import VirtualClock

EVERYTHING = RuleFilter(ANY, None, ANY, None, None, ANY, ANY)


class InlineDisk:
    async def run(self, work: Callable[..., None], *args: object) -> None:
        await asyncio.sleep(0)
        work(*args)


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[AccessRules]:
    store = MetadataStore(tmp_path, new_cluster_id="rules")
    yield AccessRules(Authorizer(), store, InlineDisk(), VirtualClock())
    store.close()


def rule(name: str) -> Rule:
    return Rule(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:p",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )


async def test_two_requests_may_remove_the_same_rules(rules: AccessRules) -> None:
    both = {rule("a"), rule("b")}
    await rules.create(both)
    found = await asyncio.gather(rules.delete([EVERYTHING]), rules.delete([EVERYTHING]))
    assert [set(of_filter) for (of_filter,) in found] == [both, both]
    assert rules.authorizer.rule_count == 0
    assert rules._bytes == 0


async def test_the_rules_that_all_filters_find_are_bounded(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MATCHES_MAX", 4)
    await rules.create([rule("a"), rule("b")])
    with pytest.raises(TooManyRulesError, match="At most 4 rules"):
        await rules.delete([EVERYTHING] * 3)
    assert rules.authorizer.rule_count == 2
    assert len(await rules.delete([EVERYTHING] * 2)) == 2
