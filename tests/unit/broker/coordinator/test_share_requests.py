"""Share groups in the shell: they are created, restored, and forget deleted topics."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from kohort.broker.coordinator.requests.share import ShareRequests
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.events import SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.group import Group, NewMembership
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.share.data import ShareSettings
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.requests import OffsetsResult, ShareHeartbeatRequest
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.groups.consumer_group import Topics
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

SETTINGS = ShareSettings(assignment_interval_ms=0)
JOIN = ShareHeartbeatRequest("m", 0, topic_names=("t",))


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.change("t", 2)
    return topics


def share_groups(topics: Topics) -> Mapping[GroupKind, NewMembership]:
    def new(group: Group) -> ShareMembership:
        return ShareMembership(group, topics, lambda _: SETTINGS, MemberAccount())

    return {GroupKind.SHARE: new}


def requests(h: Harness) -> ShareRequests:
    return ShareRequests(h.groups.host, lambda: None, lambda _: None)


def altering(epochs: list[int]) -> Callable[[int], Steps[None]]:
    """Return an `alter` callback that only appends its epoch to `epochs`."""

    def alter(epoch: int) -> Steps[None]:
        epochs.append(epoch)
        yield

    return alter


async def beat(h: Harness, request: ShareHeartbeatRequest) -> HeartbeatResult:
    result = requests(h).heartbeat("g", request)
    return await result if isinstance(result, Deferred) else result


def membership(h: Harness) -> ShareMembership:
    found = h.groups.host.membership("g", ShareMembership)
    assert found is not None
    return found


@virtual
async def test_a_group_is_created_restored_and_deleted(clock: VirtualClock, topics: Topics) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=share_groups(topics)) as h:
        assert (await beat(h, ShareHeartbeatRequest("m", 1))).error is ErrorCode.GROUP_ID_NOT_FOUND
        joined = await beat(h, JOIN)
        assert joined.epoch == 2
        assert joined.assigned is not None
        initialized = [e for _, e in h.watcher.events if isinstance(e, SharePartitionsInitialized)]
        assert [event.epoch for event in initialized] == [2]
    # The end of the broker is not that of the group.
    assert not any(isinstance(event, SharePartitionsForgotten) for _, event in h.watcher.events)
    async with running(clock, log, others=share_groups(topics)) as h:
        assert (await beat(h, ShareHeartbeatRequest("m", 2))).epoch == 2
        assert await h.groups.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
        # Its session began again with the broker.
        await asyncio.sleep(46)
        assert h.state() == "Empty"
        assert await h.groups.delete_group("g") is ErrorCode.NONE
    async with running(clock, log, others=share_groups(topics)) as h:
        assert h.state() is None


@virtual
async def test_a_join_is_answered_when_the_state_of_its_partitions_has_begun(
    clock: VirtualClock, topics: Topics
) -> None:
    begun: Deferred[None] = Deferred()
    async with running(clock, others=share_groups(topics)) as h:
        joining = ShareRequests(h.groups.host, lambda: None, lambda _: begun).heartbeat("g", JOIN)
        assert isinstance(joining, Deferred)
        await asyncio.sleep(1)
        assert not joining.is_done
        begun.set_result(None)
        assert (await joining).epoch == 2


@virtual
async def test_an_alteration_creates_a_group(clock: VirtualClock, topics: Topics) -> None:
    log = MemoryOffsetsLog()
    altered: list[int] = []
    topic_id = topics.by_name["t"].topic_id
    async with running(clock, log, others=share_groups(topics)) as h:
        assert await requests(h).alter_offsets("g", {}, altering(altered)) == OffsetsResult()
        assert (altered, h.state()) == ([], None)
        wanted = {topic_id: StoredTopic("t", (1,))}
        assert await requests(h).alter_offsets("g", wanted, altering(altered)) == OffsetsResult()
        assert (altered, h.state()) == ([1], "Empty")
    async with running(clock, log, others=share_groups(topics)) as h:
        assert membership(h).initialized == wanted
        deleted = await requests(h).delete_offsets("g", [topic_id])
        assert deleted == OffsetsResult()
        assert not membership(h).initialized


@virtual
async def test_a_group_with_offsets_does_not_become_a_share_group(
    clock: VirtualClock, topics: Topics
) -> None:
    async with running(clock, others=share_groups(topics)) as h:
        await h.do_commit(42)
        result = await beat(h, JOIN)
        assert result.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert result.message == "Group g is not a share group."
        wanted = {topics.by_name["t"].topic_id: StoredTopic("t", (0,))}
        altered: list[int] = []
        refused = await requests(h).alter_offsets("g", wanted, altering(altered))
        assert refused == OffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND, result.message)
        assert not altered


@virtual
async def test_a_topic_is_forgotten_though_the_broker_had_no_time_for_it(
    clock: VirtualClock, topics: Topics
) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=share_groups(topics)) as h:
        await beat(h, JOIN)
    topic_id = topics.by_name["t"].topic_id
    topics.change("t", 0)
    expected = [SharePartitionsForgotten(((topic_id, 0), (topic_id, 1)))]
    # The second start finds it forgotten.
    for forgotten in (expected, []):
        async with running(clock, log, others=share_groups(topics)) as h:
            assert not membership(h).initialized
            events = [event for _, event in h.watcher.events]
            assert [e for e in events if isinstance(e, SharePartitionsForgotten)] == forgotten


@virtual
async def test_a_deleted_topic_is_forgotten_while_the_group_has_members(
    clock: VirtualClock, topics: Topics
) -> None:
    async with running(clock, others=share_groups(topics)) as h:
        await beat(h, JOIN)
        topics.change("t", 0)
        await h.groups.host.forget_topics(["t"])
        assert not membership(h).initialized
        assert (await beat(h, ShareHeartbeatRequest("m", 2))).assigned == frozenset()
