"""Two users ask the same in turn: what is kept for one is never told the other.

Each has a topic that the other may not see. Both send the same bytes, so an answer that is kept by
its request alone would be wrong for one of them. Their rules change meanwhile: an answer is never
older than a change that was acknowledged.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kohort.broker.core.security.acls import Operation, PatternType, Permission, ResourceType
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.requests import create_topics
from tests.support.network.sasl import log_in
from tests.support.network.wire import RawClient, framed, request_body, response_in

USERS: Final = ("alice", "bob")
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
GROUP: Final = "both"
AT_ONCE: Final = 50
"""Requests that a user sends before it reads."""
CHANGE_EVERY: Final = 5
"""Turns of the two, after which a rule comes or goes."""

SHARED: Final = "shared"
"""A topic that a user may see at times."""
TOPICS: Final = (*(f"of-{user}" for user in USERS), SHARED)


def named(*names: str) -> tuple[m.MetadataRequest, int]:
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    return m.MetadataRequest(topics=topics, include_topic_authorized_operations=True), 12


COMMITTED: Final = [
    m.OffsetCommitRequestTopic(
        name=f"of-{user}",
        partitions=[
            m.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
        ],
    )
    for user in USERS
]
QUESTIONS: Final[Mapping[str, tuple[object, int]]] = {
    "all topics": (m.MetadataRequest(topics=None), 12),
    "two topics": named(*TOPICS[:2]),
    # Of these an answer is kept, and one that is a denial is not.
    **{name: named(name) for name in TOPICS},
    "commit": (m.OffsetCommitRequest(group_id=GROUP, member_id="", topics=COMMITTED), 8),
}


class Place(NamedTuple):
    """A broker with a port for the administrator and one for users."""

    admin: int
    users: int


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    port = free_port()
    users = " ".join(f'user_{user}="{user}"' for user in USERS)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required {users};",
        "authorizer.class.name": "kohort",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerThread(tmp_path, overrides=settings) as broker:
        yield Place(broker.port, port)


def prepare(admin: RawClient) -> None:
    create_topics(admin, *TOPICS)
    allow(admin, *(rule(user, ResourceType.TOPIC, f"of-{user}") for user in USERS))
    allow(admin, *(rule(user, ResourceType.GROUP, GROUP) for user in USERS))


def rule(user: str, kind: ResourceType, name: str) -> m.AclCreation:
    return m.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def allow(admin: RawClient, *rules: m.AclCreation) -> None:
    answer = admin.call(m.CreateAclsRequest(creations=list(rules)), 3, m.CreateAclsResponse)
    assert not any(one.error_code for one in answer.results)


def forbid(admin: RawClient, user: str, name: str) -> None:
    wanted = m.DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC, resource_name_filter=name, pattern_type_filter=3,
        principal_filter=f"User:{user}", host_filter="*", operation=1, permission_type=1,
    )  # fmt: skip
    answer = admin.call(m.DeleteAclsRequest(filters=[wanted]), 3, m.DeleteAclsResponse)
    assert [len(one.matching_acls) for one in answer.filter_results] == [1]


def check_meaning(user: str, sees_shared: bool, name: str, data: bytes) -> None:
    """The answer is the right one for this user, and names nothing of the other's."""
    seen = {f"of-{user}"} | ({SHARED} if sees_shared else set())
    if name == "commit":
        answer = response_in(data, m.OffsetCommitResponse, 8)
        told = {one.name: one.partitions[0].error_code for one in answer.topics}
        wanted: Sequence[str] = TOPICS[:2]
    else:
        topics = response_in(data, m.MetadataResponse, 12).topics
        told = {str(one.name): one.error_code for one in topics}
        wanted = {"all topics": sorted(seen), "two topics": TOPICS[:2]}.get(name, [name])
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert told == {one: 0 if one in seen else denied for one in wanted}


def compare(client: RawClient, asked: Sequence[str], expected: Mapping[str, bytes]) -> None:
    """Ask all at once; each answer has the bytes that it should have."""
    client.send(b"".join(FRAMES[name] for name in asked))
    for name in asked:
        assert client.receive() == expected[name], name


FRAMES: Final = {name: framed(request_body(*question)) for name, question in QUESTIONS.items()}


def test_two_users_who_ask_the_same_in_turn_are_never_told_what_is_the_others(
    place: Place, long_form: bool
) -> None:
    count = 1_000_000 if long_form else 4_000
    chance = random.Random(1)
    names = list(QUESTIONS)
    asked_count = changes = 0
    with (
        RawClient(place.admin) as admin,
        RawClient(place.users) as alice,
        RawClient(place.users) as bob,
    ):
        prepare(admin)
        clients = dict(zip(USERS, (alice, bob), strict=True))
        for user, client in clients.items():
            assert log_in(client, user, user).error_code == ErrorCode.NONE
        sees = dict.fromkeys(USERS, False)
        expected: dict[tuple[str, bool], dict[str, bytes]] = {}
        while asked_count < count:
            user = chance.choice(USERS)
            if sees[user]:
                forbid(admin, user, SHARED)
            else:
                allow(admin, rule(user, ResourceType.TOPIC, SHARED))
            sees[user] = not sees[user]
            changes += 1
            for _ in range(CHANGE_EVERY):
                for user, client in clients.items():
                    key = (user, sees[user])
                    if key not in expected:
                        expected[key] = {}
                        for name in names:
                            client.send(FRAMES[name])
                            data = expected[key][name] = client.receive()
                            check_meaning(*key, name, data)
                    compare(client, chance.choices(names, k=AT_ONCE), expected[key])
                    asked_count += AT_ONCE
    # No two of them are alike, or a mistake could not be seen.
    assert len({tuple(one.values()) for one in expected.values()}) == 4
    print(f"{asked_count:,} requests, {changes} changes of rules: no answer of another")
