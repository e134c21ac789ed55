"""The pages of a group, as somebody sees them who may describe the group and few topics."""

import json
from http import HTTPStatus
from typing import Any

import pytest

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.group_pages import RECORD_BYTES_MAX, SeenTopics
from kohort.broker.http.messages import HttpRequest
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from tests.unit.broker.http.test_group_pages import Asked, asked


class Tenant:
    """A requester who may describe what is named."""

    principal = "User:tenant"

    def __init__(self, *names: tuple[ResourceType, str]) -> None:
        self._names = names

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return operation is Operation.DESCRIBE and (kind, name) in self._names

    sees = may


TENANT = Tenant((ResourceType.GROUP, "own"), (ResourceType.TOPIC, "mine"))
OPERATOR = Tenant((ResourceType.CLUSTER, "kafka-cluster"))
SHARE = encode_versioned(
    ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=[0, 1]) for topic in ("mine", "theirs")
        ]
    ),
    0,
)


async def body_of(broker: Asked, page: str, requester: Tenant) -> str:
    request = HttpRequest("GET", "/", "", "", ("own",), requester=requester)
    response = await getattr(broker.pages, page)(request)
    assert response.status is HTTPStatus.OK
    return b"".join(response.body).decode()


async def test_members_are_shown_with_the_topics_that_the_visitor_may_see() -> None:
    async with asked() as broker:
        await broker.settle("own", SHARE)
        seen, whole = [await body_of(broker, "describe", one) for one in (TENANT, OPERATOR)]
        assert "theirs" in whole
        assert "theirs" not in seen
        (member,) = json.loads(seen)["members"]
        assert member["assignment"] == {"mine": [0, 1]}
        assert member["client_id"] == "client"
        assert json.loads(seen)["last_rebalance"]["sentence"]


async def test_so_are_the_partitions_that_rebalances_moved() -> None:
    async with asked() as broker:
        member_id = await broker.settle("own", SHARE)
        await broker.leave("own", member_id)
        await broker.settle("own", SHARE)
        seen, whole = [await body_of(broker, "rebalances", one) for one in (TENANT, OPERATOR)]
        assert "theirs" in whole
        assert "theirs" not in seen
        shown, full = (json.loads(one)["rebalances"] for one in (seen, whole))
        assert len(shown) == len(full) > 1
        partitions = [member["partitions"] for one in shown for member in one["members"]]
        assert ["mine-0", "mine-1"] in [one["given_up"] for one in partitions]
        # Why and for how long is the group's own.
        for mine, all_of_it in zip(shown, full, strict=True):
            assert mine["sentence"] == all_of_it["sentence"]
            assert mine["partitions"] == all_of_it["partitions"]


def record(member_count: int = 1) -> dict[str, Any]:
    cause = {"kind": "leader_rejoined", "grown_topics": ["theirs", "mine", "a-1"]}
    moved = {"given_up": ["mine-1", "a-1-0"], "gained": ["theirs-7"]}
    members = [{"member_id": "m" * 100, "partitions": moved} for _ in range(member_count)]
    return {"trigger": cause, "further_causes": [cause], "members": members}


def shown(told: dict[str, Any], requester: Tenant) -> dict[str, Any]:
    request = HttpRequest("GET", "/", "", "", ("own",), requester=requester)
    text = json.dumps(told, separators=(",", ":")).encode()
    found: dict[str, Any] = json.loads(SeenTopics(request).of_record(text))
    return found


def test_topics_that_grew_are_told_to_those_who_see_them() -> None:
    seen = shown(record(), TENANT)
    assert seen["trigger"]["grown_topics"] == ["mine"]
    assert seen["further_causes"][0]["grown_topics"] == ["mine"]
    assert seen["members"][0]["partitions"] == {"given_up": ["mine-1"], "gained": []}
    assert shown(record(), OPERATOR) == record()


@pytest.mark.parametrize("kind", ["topics_changed", "subscription_changed", "regex_resolved"])
def test_topics_in_causes_of_consumer_groups_are_told_to_those_who_see_them(kind: str) -> None:
    topics = {"old_protocols": ["mine", "theirs"], "new_protocols": ["theirs"]}
    cause = {"kind": kind, "detail": "theirs was deleted", **topics}
    seen = shown({"trigger": cause, "members": []}, TENANT)["trigger"]
    assert (seen["old_protocols"], seen["new_protocols"], seen["detail"]) == (["mine"], [], None)
    assert shown({"trigger": cause}, OPERATOR)["trigger"] == cause


def test_a_record_of_very_many_members_is_shown_without_them() -> None:
    large = record(RECORD_BYTES_MAX // 100)
    assert "members" not in shown(large, TENANT)
    assert shown(large, OPERATOR) == large


def test_an_avoided_rebalance_names_no_topics() -> None:
    avoided = {"kind": "avoided", "group": "own", "count": 3}
    assert shown(avoided, TENANT) == avoided


@pytest.mark.parametrize("topic", ["theirs", "mine2", ""])
def test_a_name_that_is_not_the_visitors_is_seen_by_operators_alone(topic: str) -> None:
    request = HttpRequest("GET", "/", "", "", ("own",), requester=TENANT)
    assert not SeenTopics(request).includes(topic)
    assert SeenTopics(HttpRequest("GET", "/", "", "", ("own",), requester=OPERATOR)).includes(topic)
