"""kill -9 while users, access rules and limits change: what was acknowledged is there."""

import random
import threading
import time
from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from kohort.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from kohort.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kohort.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kohort.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kohort.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.support.brokers.forked_kohort import ForkedKohort
from tests.support.network.wire import RawClient

MANY_KILLS = 500
LOOK_EVERY = 10
SETTINGS = {"authorizer.class.name": "kohort", "super.users": "User:ANONYMOUS"}


class Changing(threading.Thread):
    """Makes users, rules and limits of one name after the other until the broker dies."""

    def __init__(self, port: int, kind: str, begin: int) -> None:
        super().__init__(name=kind)
        self.kind = kind
        self.acknowledged: set[str] = set()
        self._port = port
        self._number = begin

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                while True:
                    self._number += 1
                    name = f"{self.kind}-{self._number}"
                    assert CHANGES[self.kind](client, name) == ErrorCode.NONE
                    self.acknowledged.add(name)
        except OSError:
            pass


def make_user(client: RawClient, name: str) -> int:
    wanted = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    return client.call(request, 0, AlterUserScramCredentialsResponse).results[0].error_code


def make_rule(client: RawClient, name: str) -> int:
    rule = AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=2,
    )
    answer = client.call(CreateAclsRequest(creations=[rule]), 3, CreateAclsResponse)
    return answer.results[0].error_code


def make_limit(client: RawClient, name: str) -> int:
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=name)],
        ops=[OpData(key="producer_byte_rate", value=9.0, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    return client.call(request, 1, AlterClientQuotasResponse).entries[0].error_code


CHANGES = {"user": make_user, "rule": make_rule, "limit": make_limit}


def all_names(client: RawClient) -> set[str | None]:
    users = client.call(
        DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse
    )
    everything = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    rules = client.call(everything, 3, DescribeAclsResponse)
    limits = client.call(
        DescribeClientQuotasRequest(components=[], strict=False), 1, DescribeClientQuotasResponse
    )
    return {
        *(one.user for one in users.results),
        *(one.resource_name for one in rules.resources),
        *(one.entity[0].entity_name for one in limits.entries or ()),
    }


@pytest.mark.long
def test_what_was_acknowledged_of_users_rules_and_limits_outlives_a_kill(tmp_path: Path) -> None:
    kills = MANY_KILLS
    chance = random.Random(1)
    acknowledged: set[str] = set()
    with ForkedKohort(tmp_path, overrides=SETTINGS) as server:
        for kill in range(1, kills + 1):
            threads = [Changing(server.port, kind, kill * 1_000) for kind in CHANGES]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.05, 0.3))
            server.kill()
            for thread in threads:
                thread.join()
                acknowledged |= thread.acknowledged
            server.start()
            # Nothing is taken away, so what is missing once is missing ever after.
            if kill % LOOK_EVERY == 0 or kill == kills:
                with RawClient(server.port) as client:
                    missing = acknowledged - all_names(client)
                assert not missing, (kill, sorted(missing)[:5])
    assert acknowledged
    print(f"{kills} kills, {len(acknowledged)} changes acknowledged, all there")
