"""A secure Kafka and a secure Kohort that are asked the same by clients with different rights.

Clients without a name come from different addresses, by which the rules tell them apart. The one
with a name is a super user.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair, Twins, wait_ready
from tests.support import messages as m
from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.brokers.server_process import ServerProcess
from tests.support.network.sasl import log_in
from tests.support.network.wire import RawClient

ADMIN, NOBODY = "127.0.0.1", "127.0.0.2"
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(2, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS = 10, 11
DENY, ALLOW = 2, 3
THE_CLUSTER: Final = "kafka-cluster"
EVERYTHING: Final = ((TOPIC, "*"), (GROUP, "*"), (TXN, "*"), (CLUSTER, THE_CLUSTER))

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Kafka's node sends itself requests as an anonymous user, before there are rules.
    "allow.everyone.if.no.acl.found": "true",
    "super.users": f"User:{USER}",
}


def rule(
    kind: int,
    name: str,
    operation: int,
    *,
    host: str,
    prefixed: bool = False,
    permission: int = ALLOW,
    principal: str = "User:ANONYMOUS",
) -> m.AclCreation:
    return m.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=4 if prefixed else 3,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create_rules(pair: Pair, rules: Sequence[m.AclCreation]) -> None:
    for answer in pair.ask(m.CreateAclsRequest(creations=list(rules)), 3):
        assert not any(result.error_code for result in answer.results), answer


class LoggedKafka(SecureKafka):
    """A Kafka that logs each right that it asks its authorizer for."""

    extra_java_options = ("-Dkohort.test.authorizer.level=TRACE",)


@contextmanager
def start_secured(directory: Path) -> Iterator[Twins]:
    """Both with an authorizer; the administrator and the super user may do everything, other
    clients nothing.
    """
    # As for the plain twins: where the other tests run against a given broker, Kafka twice.
    second = SecureKafka if os.environ.get("BOOTSTRAP") else SecureKohort
    overrides = {**TWIN_SETTINGS, **SETTINGS}
    with (
        LoggedKafka(directory / "kafka", overrides=overrides) as kafka,
        second(directory / "kohort", overrides=overrides) as kohort,
    ):
        for server in (kafka, kohort):
            wait_ready(server)
        twins = Twins(kafka, kohort)
        with Pair(twins, lambda name, text: pytest.fail(f"{name}: {text}")) as pair:
            create_rules(pair, [rule(*one, ALL, host=ADMIN) for one in EVERYTHING])
            # What rules say of a super user does not matter.
            denials = [
                rule(*one, ALL, host="*", permission=DENY, principal=f"User:{USER}")
                for one in EVERYTHING
            ]
            create_rules(pair, denials)
            # Kafka creates the coordinators' topics on their first use.
            for kind in (0, 1):
                pair.ask_until_equal(m.FindCoordinatorRequest(key="anything", key_type=kind), 3)
            keys = ["anything:J5pNjea5RtCNOIzm0jR7vg:0"]
            pair.ask_until_equal(m.FindCoordinatorRequest(coordinator_keys=keys, key_type=2), 6)
            # The id 0 is also what is told of a producer that there is not.
            pair.peek(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 0)
        yield twins


def as_super_user(server: ServerProcess, timeout_s: float) -> RawClient:
    """A connection of the one user that has a name."""
    assert isinstance(server, SecureKafka | SecureKohort)
    client = RawClient(server.ports["SASL_PLAINTEXT"], timeout_s=timeout_s)
    answer = log_in(client, USER, PASSWORD)
    assert answer.error_code == ErrorCode.NONE, answer
    return client
