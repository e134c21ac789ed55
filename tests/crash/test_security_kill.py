"""kill -9 while users, access rules and limits are made, changed and removed: what was acknowledged
counts afterwards, be it that something is gone.
"""

import random
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.client_quotas import EntityData, EntryData
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient

AT_ONCE_MAX: Final = 150
"""Things of one kind that are there at the same time."""
SETTINGS = {"authorizer.class.name": "kohort", "super.users": "User:ANONYMOUS"}
ITERATIONS: Final = 4_096
MECHANISM: Final = 1
TOPIC, LITERAL, DENY = 2, 3, 2
READ, WRITE = 3, 4

Value = int | None
"""A number that goes with a thing; None if there is no such thing."""


class Thing(NamedTuple):
    """A user, a rule or a limit. Two rules have the same name: one can go without the other."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number // 2 if self.kind == 'rule' else self.number}"

    @property
    def operation(self) -> int:
        """What a rule is about."""
        return READ + self.number % 2


Known = dict[Thing, set[Value]]
"""What each may be; it is one of two while a change is not acknowledged."""


class Changing(threading.Thread):
    """Makes, changes and removes things of one kind until the broker dies."""

    def __init__(self, port: int, kind: str, known: Known, begin: int) -> None:
        super().__init__(name=kind)
        self.known = known
        self.acknowledged = 0
        self.removed = 0
        self._kind = kind
        self._port = port
        self._number = begin
        self._chance = random.Random(begin)

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                while True:
                    self._change(client)
        except OSError:
            pass

    def _change(self, client: RawClient) -> None:
        thing, value = self._next()
        self.known[thing] = self.known.get(thing, {None}) | {value}
        assert CHANGES[self._kind](client, thing, value) == ErrorCode.NONE
        self.known[thing] = {value}
        self.acknowledged += 1
        if value is None:
            del self.known[thing]
            self.removed += 1

    def _next(self) -> tuple[Thing, Value]:
        what = self._chance.random()
        if self.known and (what < 0.45 or len(self.known) >= AT_ONCE_MAX):
            return self._chance.choice(list(self.known)), None
        value = 1 if self._kind == "rule" else self._chance.randrange(1, 1_000)
        if self.known and what < 0.55:
            return self._chance.choice(list(self.known)), value
        self._number += 1
        return Thing(self._kind, self._number), value


def change_user(client: RawClient, user: Thing, value: Value) -> int:
    deletions, upsertions = [], []
    if value is None:
        deletions.append(m.ScramCredentialDeletion(name=user.name, mechanism=MECHANISM))
    else:
        wanted = m.ScramCredentialUpsertion(
            name=user.name,
            mechanism=MECHANISM,
            iterations=ITERATIONS + value,
            salt=bytes(16),
            salted_password=bytes(32),
        )
        upsertions.append(wanted)
    request = m.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    return client.call(request, 0, m.AlterUserScramCredentialsResponse).results[0].error_code


def change_rule(client: RawClient, rule: Thing, value: Value) -> int:
    if value is None:
        wanted = m.DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=rule.name,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=rule.operation,
            permission_type=DENY,
        )
        gone = client.call(m.DeleteAclsRequest(filters=[wanted]), 3, m.DeleteAclsResponse)
        (result,) = gone.filter_results
        assert [one.pattern_type for one in result.matching_acls] == [LITERAL]
        return result.error_code
    made = m.AclCreation(
        resource_type=TOPIC,
        resource_name=rule.name,
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=rule.operation,
        permission_type=DENY,
    )
    answer = client.call(m.CreateAclsRequest(creations=[made]), 3, m.CreateAclsResponse)
    return answer.results[0].error_code


def change_limit(client: RawClient, limit: Thing, value: Value) -> int:
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=limit.name)],
        ops=[m.OpData(key="producer_byte_rate", value=float(value or 0), remove=value is None)],
    )
    request = m.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    return client.call(request, 1, m.AlterClientQuotasResponse).entries[0].error_code


CHANGES: Final = {"user": change_user, "rule": change_rule, "limit": change_limit}


def found_things(client: RawClient) -> dict[Thing, Value]:
    users = client.call(
        m.DescribeUserScramCredentialsRequest(users=None), 0, m.DescribeUserScramCredentialsResponse
    )
    found: dict[Thing, Value] = {
        Thing("user", number_of(one.user)): one.credential_infos[0].iterations - ITERATIONS
        for one in users.results
    }
    everything = m.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    for of in client.call(everything, 3, m.DescribeAclsResponse).resources:
        for rule in of.acls:
            number = 2 * number_of(of.resource_name) + rule.operation - READ
            found[Thing("rule", number)] = 1
    limits = client.call(
        m.DescribeClientQuotasRequest(components=[], strict=False),
        1,
        m.DescribeClientQuotasResponse,
    )
    for one in limits.entries or ():
        found[Thing("limit", number_of(one.entity[0].entity_name or ""))] = int(one.values[0].value)
    return found


def number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


@pytest.mark.long
def test_what_was_acknowledged_of_users_rules_and_limits_outlives_a_kill(
    tmp_path: Path, crash_runs: int
) -> None:
    chance = random.Random(1)
    acknowledged = removed = open_at_a_kill = 0
    known: dict[str, Known] = {kind: {} for kind in CHANGES}
    with KohortServer(tmp_path, overrides=SETTINGS) as server:
        for kill in range(1, crash_runs + 1):
            threads = [Changing(server.port, kind, known[kind], kill * 10_000) for kind in CHANGES]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.05, 0.3))
            server.kill()
            for thread in threads:
                thread.join()
                acknowledged += thread.acknowledged
                removed += thread.removed
                open_at_a_kill += sum(len(values) > 1 for values in thread.known.values())
            server.start()
            with RawClient(server.port) as client:
                found = found_things(client)
            expected = {thing: values for kind in known.values() for thing, values in kind.items()}
            wrong = {
                thing: (found.get(thing), expected.get(thing))
                for thing in found.keys() | expected.keys()
                if found.get(thing) not in expected.get(thing, {None})
            }
            assert not wrong, (kill, wrong)
            # What was open is decided now, and stays so.
            for kind, things in known.items():
                things.clear()
                things.update({one: {found[one]} for one in found if one.kind == kind})
    assert acknowledged > removed > 0
    print(
        f"{crash_runs} kills, {acknowledged} changes acknowledged, {removed} of them removals, "
        f"and {open_at_a_kill} not"
    )
