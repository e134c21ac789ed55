"""Commits and lookups of committed offsets, row by row of what a coordinator may answer."""

import asyncio
from typing import cast

import pytest

from kohort.client.core.errors import (
    AuthorizationError,
    CommitError,
    CommitFailedError,
    ConsumerError,
    FencedInstanceError,
    GroupError,
    OperationTimedOutError,
    RebalanceInProgressError,
    UnexpectedResponseError,
    UnknownTopicError,
)
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.offsets import GroupOffsets
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import TOPIC, TOPIC_ID
from tests.unit.client.scripted_coordinator import HANGS_UP, ME, A, B, Scene

RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    HANGS_UP,
]
REDISCOVERED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    HANGS_UP,
}


@pytest.mark.parametrize(
    "fault", [*RETRIED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
)
@virtual
async def test_a_commit_is_tried_again_where_that_may_help(fault: ErrorCode | str) -> None:
    scene = Scene()
    scene.broker.faults.extend([fault, fault])
    await scene.commit()
    assert scene.broker.stored == {0: (1, "", -1)}
    assert scene.broker.searches == (3 if fault in REDISCOVERED else 1)
    assert scene.observer.stale_count == (2 if fault is ErrorCode.UNKNOWN_TOPIC_ID else 0)
    assert scene.membership.identity == ME


@virtual
async def test_offsets_of_a_deleted_topic_are_not_committed_to_its_successor() -> None:
    scene = Scene()
    scene.broker.faults.extend([ErrorCode.UNKNOWN_TOPIC_ID] * 20)
    commit = asyncio.create_task(scene.commit())
    await asyncio.sleep(0.15)  # The first attempt has failed.
    scene.cluster.learn_topic(None)
    await asyncio.sleep(0.2)
    assert not commit.done(), "the broker may not know the topic yet"
    scene.cluster.learn_topic(b"j" * 16)
    with pytest.raises(UnknownTopicError, match="t: deleted since the records were read"):
        await commit
    assert {*scene.broker.request_versions} == {10}, "by the id of the deleted topic"
    # Automatic commits are not retried while the topic is missing.
    scene.cluster.learn_topic(TOPIC_ID)
    commit = asyncio.create_task(
        scene.offsets.commit({A: OffsetAndMetadata(1)}, 10, is_automatic=True)
    )
    await asyncio.sleep(0.05)
    scene.cluster.learn_topic(None)
    with pytest.raises(UnknownTopicError, match="t: deleted"):
        await commit
    assert scene.broker.stored == {}


@virtual
async def test_only_what_was_stored_counts_as_a_commit() -> None:
    scene = Scene()
    stored, failed = scene.observer.seconds, scene.observer.failures
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.broker.faults.extend([refused, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
    with pytest.raises(AuthorizationError):
        await scene.commit()
    assert (len(stored), failed) == (0, [refused])
    await scene.commit()
    assert (len(stored), failed) == (1, [refused, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
    # A commit in a rebalance is none that failed: there is another one at its end.
    scene.broker.faults.append(ErrorCode.REBALANCE_IN_PROGRESS)
    with pytest.raises(RebalanceInProgressError):
        await scene.commit()
    assert (len(stored), len(failed)) == (1, 2)


@pytest.mark.parametrize("fault", [*RETRIED, ErrorCode.UNSTABLE_OFFSET_COMMIT])
@virtual
async def test_a_lookup_is_tried_again_where_that_may_help(fault: ErrorCode | str) -> None:
    scene = Scene()
    scene.broker.stored = {0: (7, "note", 3)}
    scene.broker.faults.extend([fault, fault])
    found = await scene.offsets.fetch([A, B], 10)
    assert found == {A: OffsetAndMetadata(7, "note", 3), B: None}
    assert scene.broker.searches == (3 if fault in REDISCOVERED else 1)


@pytest.mark.parametrize("call", ["commit", "fetch"])
@virtual
async def test_attempts_end_with_the_time_and_say_what_the_last_one_came_to(call: str) -> None:
    scene = Scene()
    scene.broker.faults.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000)
    began_s = asyncio.get_running_loop().time()
    attempts = scene.commit() if call == "commit" else scene.offsets.fetch([A], 10)
    with pytest.raises(OperationTimedOutError, match="COORDINATOR_LOAD_IN_PROGRESS") as raised:
        await attempts
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=0.1)
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(raised.value, TimeoutError)
    # With waits that grow: a coordinator in trouble is not flooded.
    assert len(scene.broker.request_versions) < 25


@pytest.mark.parametrize(
    ("code", "error", "left"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, NO_MEMBER),
        (ErrorCode.GROUP_ID_NOT_FOUND, CommitFailedError, NO_MEMBER),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, Identity(member_id="me")),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceError, NO_MEMBER),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, ME),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, CommitError, ME),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, CommitError, ME),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError, ME),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, ME),
        (ErrorCode.INVALID_GROUP_ID, GroupError, ME),
        (ErrorCode.UNKNOWN_SERVER_ERROR, UnexpectedResponseError, ME),
    ],
)
@virtual
async def test_a_commit_that_is_refused_is_not_repeated_and_counts_for_the_membership(
    code: ErrorCode, error: type[ConsumerError], left: Identity
) -> None:
    scene = Scene(instance_id="one")
    scene.broker.faults.append(code)
    with pytest.raises(error) as raised:
        await scene.commit()
    assert raised.value.code is code
    assert len(scene.broker.commits) == 1
    assert scene.membership.identity == left
    rejoin = scene.membership._rejoin
    assert (rejoin is not None) == (left != ME or code is ErrorCode.REBALANCE_IN_PROGRESS)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        assert TOPIC in str(raised.value)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
@pytest.mark.parametrize("is_rebalancing", [True, False])
@virtual
async def test_an_answer_about_an_identity_of_the_past_does_not_cost_the_present_one(
    code: ErrorCode, is_rebalancing: bool
) -> None:
    scene = Scene(instance_id="one")
    scene.broker.faults.append(code)
    commit = asyncio.create_task(scene.commit())
    await asyncio.sleep(0.0015)
    newer = Identity(6, "me", "cooperative-sticky")
    scene.membership.identity = newer
    if is_rebalancing:
        scene.membership.state = MemberState.COMPLETING_REBALANCE
    with pytest.raises(RebalanceInProgressError if is_rebalancing else CommitError):
        await commit
    assert scene.membership.identity == newer
    assert scene.membership.failure is None


LATER = Identity(6, "me", "cooperative-sticky")


@pytest.mark.parametrize(
    ("now", "error"), [(LATER, RebalanceInProgressError), (NO_MEMBER, CommitFailedError)]
)
@virtual
async def test_a_commit_that_is_tried_again_is_not_sent_as_somebody_else(
    now: Identity, error: type[CommitError]
) -> None:
    scene = Scene()
    scene.broker.faults.append(HANGS_UP)
    commit = asyncio.create_task(scene.commit(10))
    await asyncio.sleep(0.005)
    assert len(scene.broker.request_versions) == 1
    # Another member has the partition meanwhile, and has committed.
    scene.broker.stored = {0: (50, "", -1)}
    scene.membership.identity = now
    with pytest.raises(error):
        await commit
    assert scene.broker.stored == {0: (50, "", -1)}
    assert scene.broker.commits == []


@virtual
async def test_a_commit_that_waits_behind_another_keeps_the_identity_of_its_call() -> None:
    scene = Scene()
    told: list[Exception | None] = []
    await scene.coordinator.find()
    first = asyncio.create_task(scene.commit(1))
    await asyncio.sleep(0.0005)
    scene.offsets.commit_async({A: OffsetAndMetadata(2)}, lambda _, error: told.append(error))
    await asyncio.sleep(0)
    scene.membership.identity = LATER
    # The first is under way already: its coordinator decides.
    await first
    await asyncio.sleep(0.01)
    await scene.offsets.callbacks.run_due()
    assert [type(error) for error in told] == [RebalanceInProgressError]
    assert [one.generation_id_or_member_epoch for one in scene.broker.commits] == [5]


@virtual
async def test_a_commit_before_the_first_join_says_what_to_do() -> None:
    scene = Scene()
    scene.membership.identity, scene.membership.state = NO_MEMBER, MemberState.UNJOINED
    with pytest.raises(CommitFailedError, match="poll first"):
        await scene.commit()


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@virtual
async def test_while_a_join_is_parked_its_answer_decides_and_not_that_of_a_commit(
    code: ErrorCode,
) -> None:
    scene = Scene()
    scene.membership.state = MemberState.PREPARING_REBALANCE
    scene.broker.faults.append(code)
    with pytest.raises(RebalanceInProgressError):
        await scene.commit()
    assert scene.membership.identity == ME
    assert scene.membership.state is MemberState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnexpectedResponseError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, UnexpectedResponseError),
    ],
)
@virtual
async def test_a_lookup_that_is_refused_says_of_what(
    code: ErrorCode, error: type[ConsumerError]
) -> None:
    scene = Scene()
    scene.broker.faults.append(code)
    with pytest.raises(error, match="committed offsets of group g") as raised:
        await scene.offsets.fetch([A, B], 10)
    assert raised.value.code is code
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        assert f"{TOPIC}-0" in str(raised.value)
        assert f"{TOPIC}-1" not in str(raised.value)


@virtual
async def test_a_group_that_cannot_be_found_is_looked_for_until_it_is() -> None:
    scene = Scene()
    scene.broker.search_faults.extend([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3)
    await scene.commit()
    assert scene.broker.searches == 4
    scene.coordinator.lost()
    scene.broker.search_faults.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="finding the coordinator"):
        await scene.commit()


@pytest.mark.parametrize("version", range(2, 11))
@virtual
async def test_every_version_carries_a_commit(version: int) -> None:
    scene = Scene()
    scene.broker.versions = ApiVersionTable({8: (2, version), 10: (0, 6)})
    await scene.offsets.commit({A: OffsetAndMetadata(3, "x", 2), B: OffsetAndMetadata(4)}, 10)
    epoch = 2 if version >= 6 else -1
    assert scene.broker.stored == {0: (3, "x", epoch), 1: (4, "", -1)}
    (sent,) = scene.broker.commits
    assert (sent.generation_id_or_member_epoch, sent.member_id) == (5, "me")
    assert scene.broker.request_versions == [version]


@pytest.mark.parametrize("version", range(1, 11))
@virtual
async def test_every_version_carries_what_was_committed(version: int) -> None:
    scene = Scene()
    scene.broker.versions = ApiVersionTable({9: (1, version), 10: (0, 6)})
    scene.broker.stored = {0: (3, "x", 2)}
    found = await scene.offsets.fetch([A, B], 10)
    assert found == {A: OffsetAndMetadata(3, "x", 2 if version >= 5 else -1), B: None}
    assert scene.broker.request_versions == [version]
    assert scene.broker.fetches[0].require_stable == (version >= 7)


@virtual
async def test_topics_without_a_known_id_are_named() -> None:
    scene = Scene()
    scene.cluster.learn([], is_complete=True)
    await scene.commit(5)
    assert (await scene.offsets.fetch([A], 10))[A] == OffsetAndMetadata(5)
    assert scene.broker.request_versions == [9, 9]


@virtual
async def test_a_commit_by_itself_does_not_wait_for_topics_that_are_gone() -> None:
    scene = Scene()
    scene.broker.faults.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(ConsumerError):
        await scene.offsets.commit({A: OffsetAndMetadata(1)}, 10, is_automatic=True)
    assert len(scene.broker.commits) == 1


@virtual
async def test_commits_overtake_neither_each_other_nor_one_that_was_given_up() -> None:
    scene = Scene()
    scene.broker.faults.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2)
    await scene.coordinator.find()
    first = asyncio.create_task(scene.commit(1))
    await asyncio.sleep(0.0005)
    given_up = asyncio.create_task(scene.commit(2))
    scene_offsets = {A: OffsetAndMetadata(3)}
    await asyncio.sleep(0)
    scene.offsets.commit_async(scene_offsets, None)
    last = asyncio.create_task(scene.commit(4))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(first, last)
    sent = [one.topics[0].partitions[0].committed_offset for one in scene.broker.commits]
    assert sent == [1, 1, 1, 3, 4]


@virtual
async def test_commits_go_beside_a_join_that_is_parked() -> None:
    scene = Scene()
    await scene.commit()
    scene.member._round = cast("asyncio.Task[None]", object())
    await scene.commit()
    assert scene.cluster.purposes == ["group", "offsets"]


@virtual
async def test_a_commit_without_offsets_sends_no_request() -> None:
    scene = Scene()
    await scene.offsets.commit({}, 10)
    assert await scene.offsets.fetch([], 10) == {}
    assert scene.broker.request_versions == []


@virtual
async def test_a_commit_from_outside_the_group_says_so() -> None:
    scene = Scene()
    offsets = GroupOffsets(
        scene.cluster,
        scene.coordinator,
        group_instance_id="one",
        backoff_ms=(100, 1000),
        observer=scene.observer,
    )
    await offsets.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(1)}, 10)
    (sent,) = scene.broker.commits
    assert sent.generation_id_or_member_epoch == -1
    assert (sent.member_id, sent.group_instance_id) == ("", None)
    scene.broker.faults.append(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(CommitFailedError, match="has members"):
        await offsets.commit({A: OffsetAndMetadata(1)}, 10)
