"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups and OffsetDelete by version."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.errors import ErrorCode, KafkaError
from tests.support import messages as m
from tests.support.groups.running_groups import SUBSCRIPTION, RunningGroups, running_groups
from tests.support.measures.bytecodes import metered
from tests.support.memory_logs import MemoryOffsetsLog

NOT_ASKED = -0x8000_0000


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
    @pytest.mark.parametrize("version", range(4))
    async def test_it_is_always_this_broker(self, version: int) -> None:
        async with running_groups() as g:
            for key_type in (0, 1) if version else (0,):
                answer = await g.ask(m.FindCoordinatorRequest(key="g", key_type=key_type), version)
                assert answer == m.FindCoordinatorResponse(
                    error_code=ErrorCode.NONE,
                    error_message="NONE" if version else "",
                    node_id=1,
                    host="broker.example",
                    port=9092,
                )

    @pytest.mark.parametrize("version", [4, 5, 6])
    async def test_several_keys_are_answered_each(self, version: int) -> None:
        async with running_groups() as g:
            answer = await g.ask(m.FindCoordinatorRequest(coordinator_keys=["g", ""]), version)
            assert answer == m.FindCoordinatorResponse(
                coordinators=[
                    m.Coordinator(
                        key=key,
                        node_id=1,
                        host="broker.example",
                        port=9092,
                        error_code=ErrorCode.NONE,
                        error_message="",
                    )
                    for key in ("g", "")
                ]
            )

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

    @pytest.mark.parametrize("version", range(1, 7))
    async def test_other_keys_have_no_coordinator(self, version: int) -> None:
        async with running_groups() as g:
            request = m.FindCoordinatorRequest(key_type=2)
            if version >= 4:
                request.coordinator_keys = ["g"]
                (found,) = (await g.ask(request, version)).coordinators
            else:
                request.key = "g"
                found = await g.ask(request, version)
            assert found.error_code == ErrorCode.INVALID_REQUEST
            assert (found.node_id, found.host, found.port) == (-1, "", -1)


class TestDescribeGroups:
    @pytest.mark.parametrize("version", range(7))
    async def test_a_stable_group_is_shown_whole(self, version: int) -> None:
        async with running_groups() as g:
            member_id = await g.lone_member()
            answer = await g.ask(m.DescribeGroupsRequest(groups=["g"]), version)
            assert answer == m.DescribeGroupsResponse(
                groups=[
                    m.DescribedGroup(
                        error_code=ErrorCode.NONE,
                        group_id="g",
                        group_state="Stable",
                        protocol_type="consumer",
                        protocol_data="range",
                        members=[
                            m.DescribedGroupMember(
                                member_id=member_id,
                                group_instance_id="i" if version >= 4 else None,
                                client_id="c",
                                client_host="/127.0.0.1",
                                member_metadata=SUBSCRIPTION,
                                member_assignment=b"share",
                            )
                        ],
                        authorized_operations=NOT_ASKED,
                    )
                ]
            )

    async def test_otherwise_assignor_and_metadata_are_not(self) -> None:
        async with running_groups() as g:
            await g.join(instance="i")
            (group,) = (await g.ask(m.DescribeGroupsRequest(groups=["g"]))).groups
            assert group.group_state == "CompletingRebalance"
            assert group.protocol_data == ""
            assert [member.member_metadata for member in group.members] == [b""]

    @pytest.mark.parametrize("version", range(7))
    async def test_a_group_that_does_not_exist(self, version: int) -> None:
        async with running_groups() as g:
            request = m.DescribeGroupsRequest(
                groups=["nobody's"], include_authorized_operations=version >= 3
            )
            (group,) = (await g.ask(request, version)).groups
            newest = version >= 6
            assert group == m.DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if newest else ErrorCode.NONE,
                error_message="Group nobody's not found." if newest else None,
                group_id="nobody's",
                group_state="Dead",
                protocol_type="",
                protocol_data="",
                members=[],
                authorized_operations=3400 if 3 <= version < 6 else NOT_ASKED,
            )

    async def test_operations_are_told_on_request(self) -> None:
        async with running_groups() as g:
            await g.lone_member()
            request = m.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
            (group,) = (await g.ask(request)).groups
            assert group.authorized_operations == 3400

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

    @pytest.mark.parametrize("version", range(6))
    async def test_all_groups_are_listed(self, version: int) -> None:
        async with running_groups() as g:
            await g.lone_member()
            await commit(g, "simple", "t")
            stable, empty = ("Stable", "Empty") if version >= 4 else ("", "")
            classic = "classic" if version >= 5 else ""
            assert await self.listed(g, version) == [
                ("g", "consumer", stable, classic),
                ("simple", "", empty, classic),
            ]

    @pytest.mark.parametrize(
        ("states", "types", "found"),
        [
            (["Stable"], [], ["g"]),
            (["sTABLE", "empty"], [], ["g", "simple"]),
            (["Dead"], [], []),
            (["whatever"], [], []),
            ([], ["Classic"], ["g", "simple"]),
            ([], ["consumer"], []),
            (["Empty"], ["classic", "share"], ["simple"]),
        ],
    )
    async def test_filters_take_any_case(
        self, states: list[str], types: list[str], found: list[str]
    ) -> None:
        async with running_groups() as g:
            await g.lone_member()
            await commit(g, "simple", "t")
            listed = await self.listed(g, states=states, types=types)
            assert [group_id for group_id, *_ in listed] == found

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
    @pytest.mark.parametrize("version", range(4))
    async def test_each_has_its_own_result_and_is_answered_once(self, version: int) -> None:
        async with running_groups() as g:
            await g.lone_member()
            await commit(g, "simple", "t")
            names = ["simple", "g", "nobody's", "simple"]
            answer = await g.ask(m.DeleteGroupsRequest(groups_names=names), version)
            assert answer == m.DeleteGroupsResponse(
                results=[
                    m.DeletableGroupResult(group_id=group_id, error_code=error)
                    for group_id, error in (
                        ("simple", ErrorCode.NONE),
                        ("g", ErrorCode.NON_EMPTY_GROUP),
                        ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND),
                    )
                ]
            )
            assert g.groups.host.group("simple") is None

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
    async def test_each_partition_has_its_own_result(self) -> None:
        async with running_groups() as g:
            await g.topics.changes.create_topic("u", partition_count=1)
            await g.lone_member()
            request = offset_delete("g", ("t", [0, 3]), ("u", [0]), ("nobody's", [0]))
            answer = await g.ask(request)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert answer == m.OffsetDeleteResponse(
                error_code=ErrorCode.NONE,
                topics=[
                    m.OffsetDeleteResponseTopic(
                        name=name,
                        partitions=[
                            m.OffsetDeleteResponsePartition(partition_index=i, error_code=error)
                            for i, error in results
                        ],
                    )
                    for name, results in (
                        ("t", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), (3, unknown)]),
                        ("u", [(0, ErrorCode.NONE)]),
                        ("nobody's", [(0, unknown)]),
                    )
                ],
            )

    async def test_a_topic_without_partitions_is_left_out(self) -> None:
        async with running_groups() as g:
            await commit(g, "g", "t")
            answer = await g.ask(offset_delete("g", ("t", []), ("nobody's", [])))
            assert answer == m.OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])

    @pytest.mark.parametrize(
        ("group_id", "error"),
        [("", ErrorCode.INVALID_GROUP_ID), ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    @pytest.mark.parametrize("topics", [[], [("t", [0])], [("nobody's", [0])]])
    async def test_an_error_of_the_group_leaves_nothing_else(
        self, group_id: str, error: ErrorCode, topics: list[tuple[str, list[int]]]
    ) -> None:
        async with running_groups() as g:
            answer = await g.ask(offset_delete(group_id, *topics))
            assert answer == m.OffsetDeleteResponse(error_code=error, topics=[])

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
