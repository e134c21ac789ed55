"""What one client may make the coordinator hold is set by the operator."""

from pathlib import Path

import pytest

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.requests import CommitRequest, JoinRequest, OffsetToCommit
from kohort.protocol.errors import ErrorCode, KafkaError


def broker_with(directory: Path, *settings: str) -> Broker:
    own = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
    )
    return Broker(load(overrides=[*own, *settings]))


NAMES_BYTES = len("range") + len("c")
"""What a member chose to be called counts, too."""


def join_with(metadata: bytes, client_id: str = "c") -> JoinRequest:
    protocols = (("range", metadata),)
    return JoinRequest("", None, client_id, "127.0.0.1", 45_000, 60_000, "consumer", protocols)


async def test_no_more_groups_than_are_allowed(tmp_path: Path) -> None:
    commit = CommitRequest((OffsetToCommit("t", 0, 42),), member_id="", generation=-1)
    async with broker_with(tmp_path, "kohort.groups.max=1").running() as broker:
        groups = broker.services.groups
        await groups.commit("first", commit, may_answer_group_not_found=True)
        with pytest.raises(KafkaError) as refused:
            await groups.commit("second", commit, may_answer_group_not_found=True)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.host.group_ids() == ["first"]


async def test_no_more_is_told_to_assignors_than_is_allowed(tmp_path: Path) -> None:
    async with broker_with(tmp_path, "kohort.group.metadata.bytes.max=100").running() as broker:
        classic = broker.services.classic_groups
        assert (await classic.join("g", join_with(bytes(100 - NAMES_BYTES)))).error is (
            ErrorCode.MEMBER_ID_REQUIRED
        )
        assert (await classic.join("g", join_with(bytes(101 - NAMES_BYTES)))).error is (
            ErrorCode.GROUP_MAX_SIZE_REACHED
        )


async def test_the_oldest_unused_id_is_forgotten_beyond_the_limit(tmp_path: Path) -> None:
    async with broker_with(tmp_path, "kohort.group.pending.ids.max=2").running() as broker:
        groups, classic = broker.services.groups, broker.services.classic_groups
        ids = [(await classic.join("g", join_with(b"", name))).member_id for name in "abc"]
        group = groups.host.membership("g", ClassicMembership)
        assert group is not None
        assert list(group.roster.pending) == ids[1:]


async def test_the_inbox_of_a_group_is_as_long_as_is_allowed(tmp_path: Path) -> None:
    async with broker_with(tmp_path, "kohort.group.inbox.max=7").running() as broker:
        assert broker.services.groups.host.inbox_max == 7
