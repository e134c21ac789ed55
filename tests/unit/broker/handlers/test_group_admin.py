"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups and OffsetDelete by version."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support import messages as m
from tests.support.groups.running_groups import RunningGroups, running_groups
from tests.support.measures.bytecodes import metered
from tests.support.memory_logs import MemoryOffsetsLog


async def commit(g: RunningGroups, group_id: str, *topics: str) -> None:
    offsets = tuple(OffsetToCommit(topic, 0, 1) for topic in topics)
    await g.groups.commit(group_id, CommitRequest(offsets), may_answer_group_not_found=True)


class UncreatedLog(MemoryOffsetsLog):
    """A log that cannot be created."""

    def prepare(self) -> Awaitable[None]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"))
        return failed


class TestFindCoordinator:
    @pytest.mark.parametrize("version", range(7))
    async def test_the_coordinator_is_not_available_if_its_topic_cannot_be_created(
        self, version: int
    ) -> None:
        async with running_groups() as g:
            g.groups.host.log = UncreatedLog()
            keys = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
            answer = await g.ask(m.FindCoordinatorRequest(**keys), version)
            found = answer.coordinators[0] if version >= 4 else answer
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (found.node_id, found.host, found.port) == (-1, "", -1)

    @pytest.mark.parametrize(
        ("key", "is_found"),
        [
            ("g:J5pNjea5RtCNOIzm0jR7vg:0", True),
            ("a:b:J5pNjea5RtCNOIzm0jR7vg:1", True),
            ("g:J5pNjea5RtCNOIzm0jR7vg==:+1", True),
            ("g:AAAAAAAAAAAAAAAAAAAAAA:-1", True),
            ("g", False),
            ("g:J5pNjea5RtCNOIzm0jR7vg", False),
            ("g:J5pNjea5RtCNOIzm0jR7vg:", False),
            ("g:J5pNjea5RtCNOIzm0jR7vg:x", False),
            ("g:J5pNjea5RtCNOIzm0jR7vg:2147483648", False),
            ("g:AAAA:1", False),
            (" :J5pNjea5RtCNOIzm0jR7vg:0", False),
        ],
    )
    async def test_a_share_partition_is_found_by_its_key_since_v6(
        self, key: str, is_found: bool
    ) -> None:
        async with running_groups() as g:
            for version, found in ((5, False), (6, is_found)):
                request = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
                (coordinator,) = (await g.ask(request, version)).coordinators
                expected = (ErrorCode.NONE, 1) if found else (ErrorCode.INVALID_REQUEST, -1)
                assert (coordinator.error_code, coordinator.node_id) == expected


class TestDescribeGroups:
    async def test_a_group_of_which_nothing_can_be_said(self) -> None:
        async with running_groups() as g:
            await g.groups.host.close()
            (group,) = (await g.ask(m.DescribeGroupsRequest(groups=["g"]))).groups
            assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")


class TestListGroups:
    @staticmethod
    async def listed(
        g: RunningGroups,
        version: int = 5,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
    ) -> list[tuple[str, str, str, str]]:
        request = m.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = await g.ask(request, version)
        assert answer.error_code == ErrorCode.NONE
        return sorted(
            (one.group_id, one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        )

    async def test_a_filter_is_read_once_and_not_for_each_group(self) -> None:
        async with running_groups() as g:
            await commit(g, "first", "t")
            with metered() as few:
                assert not await self.listed(g, states=["Dead"] * 1_000, types=["other"] * 1_000)
            for number in range(100):
                await commit(g, f"g{number}", "t")
            with metered() as many:
                assert not await self.listed(g, states=["Dead"] * 1_000, types=["other"] * 1_000)
            assert many.count < 3 * few.count


class TestDeleteGroups:
    async def test_a_coordinator_that_stops_says_so(self) -> None:
        async with running_groups() as g:
            await g.groups.host.close()
            (result,) = (await g.ask(m.DeleteGroupsRequest(groups_names=["g"]))).results
            assert result.error_code == ErrorCode.NOT_COORDINATOR


def offset_delete(group_id: str, *topics: tuple[str, list[int]]) -> m.OffsetDeleteRequest:
    return m.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            m.OffsetDeleteRequestTopic(
                name=name,
                partitions=[m.OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
            )
            for name, indexes in topics
        ],
    )


class TestOffsetDelete:
    async def test_what_is_deleted_is_gone(self) -> None:
        async with running_groups() as g:
            await commit(g, "simple", "t")
            await g.ask(offset_delete("simple", ("t", [0])))
            assert g.groups.committed("simple", "t", 0) is None


async def test_offsets_go_with_their_topic() -> None:
    async with running_groups() as g:
        await commit(g, "simple", "t")
        topic = g.topics.get("t")
        assert topic is not None
        assert await g.topics.changes.delete_topics([topic]) == [None]
        assert g.groups.committed("simple", "t", 0) is None
