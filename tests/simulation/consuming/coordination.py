"""A broker's side of the group: the answers of its coordinator, or of a broker that is not it."""

from collections.abc import Callable, Collection
from typing import Any

from kohort.broker.handlers.classic_groups import _respond_for_several
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    OffsetToCommit,
    SyncResult,
)
from kohort.protocol.errors import ErrorCode
from tests.simulation.consuming.group_host import Author, GroupHost
from tests.simulation.consuming.network import Wire
from tests.simulation.consuming.records import TOPIC
from tests.support import messages as m
from tests.support.groups.driven_members import join_request, joined, sync_request, synced

Answer = Callable[[Any], None]
Committed = Callable[[Author, int, int, Collection[int]], None]
"""Told of a commit that was taken: whose it is, the partition, the offset, and the partitions that
this member may commit for."""


class Coordination:
    """The apis of groups at one broker, by their names."""

    def __init__(
        self, host: GroupHost, is_coordinator: Callable[[], bool], on_committed: Committed
    ) -> None:
        self._host = host
        self._is_coordinator = is_coordinator
        self._on_committed = on_committed

    def JoinGroup(self, request: m.JoinGroupRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        if not self._is_coordinator():
            answer(joined(JoinResult(ErrorCode.NOT_COORDINATOR)))
            return
        asked = join_request(request, str(wire.process))
        host = self._host
        host.ask(
            lambda ticket: host.classic.join(asked, ticket, host.now),
            lambda result: answer(joined(result)),
        )

    def SyncGroup(self, request: m.SyncGroupRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        if not self._is_coordinator():
            answer(synced(SyncResult(ErrorCode.NOT_COORDINATOR)))
            return
        asked = sync_request(request)
        host = self._host
        host.ask(
            lambda ticket: host.classic.sync(asked, ticket, host.now),
            lambda result: answer(synced(result)),
        )

    def Heartbeat(self, request: m.HeartbeatRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        code = ErrorCode.NOT_COORDINATOR
        if self._is_coordinator():
            host = self._host
            host.catch_up()
            code = host.heartbeat(
                request.member_id, request.generation_id, instance=request.group_instance_id
            )
            host.set_timer()
        answer(m.HeartbeatResponse(error_code=code))

    def LeaveGroup(self, request: m.LeaveGroupRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        members = request.members
        entries = [LeaveEntry(one.member_id, one.group_instance_id) for one in members]

        def left(result: LeaveResult) -> None:
            answer(_respond_for_several(members, result))

        host = self._host
        if self._is_coordinator():
            host.ask(lambda ticket: host.classic.leave(entries, ticket, host.now), left)
        else:
            left(LeaveResult(ErrorCode.NOT_COORDINATOR))

    def OffsetCommit(  # noqa: N802
        self, request: m.OffsetCommitRequest, answer: Answer, wire: Wire
    ) -> None:
        partitions = [one for topic in request.topics for one in topic.partitions]
        host, member_id = self._host, request.member_id
        author = Author(wire.process, request.generation_id_or_member_epoch, member_id)

        def committed(result: CommitResult) -> None:
            for one, code in zip(partitions, result.errors, strict=True):
                if not code:
                    self._on_committed(
                        author, one.partition_index, one.committed_offset, host.holds(member_id)
                    )
            answer(_committed(partitions, result.errors))

        if not self._is_coordinator():
            answer(_committed(partitions, [ErrorCode.NOT_COORDINATOR] * len(partitions)))
            return
        asked = CommitRequest(
            tuple(
                OffsetToCommit(TOPIC, one.partition_index, one.committed_offset)
                for one in partitions
            ),
            member_id,
            request.group_instance_id,
            author.generation,
        )
        host.ask(lambda ticket: host.group.commit(asked, ticket, host.now), committed)

    def OffsetFetch(self, request: m.OffsetFetchRequest, answer: Answer, wire: Wire) -> None:  # noqa: N802
        host = self._host
        host.catch_up()
        (asked,) = request.groups
        code = ErrorCode.NONE if self._is_coordinator() else ErrorCode.NOT_COORDINATOR
        found = []
        for topic in asked.topics or () if not code else ():
            for index in topic.partition_indexes:
                offset = host.offset(TOPIC, index)
                found.append(
                    m.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1 if offset is None else offset,
                        metadata="",
                        error_code=0,
                    )
                )
        topics = [m.OffsetFetchResponseTopic(name=TOPIC, partitions=found)] if found else []
        group = m.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=code)
        answer(m.OffsetFetchResponse(groups=[group]))


def _committed(partitions: list[Any], errors: Any) -> m.OffsetCommitResponse:  # noqa: ANN401
    return m.OffsetCommitResponse(
        topics=[
            m.OffsetCommitResponseTopic(
                name=TOPIC,
                partitions=[
                    m.OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                    for one, code in zip(partitions, errors, strict=True)
                ],
            )
        ]
    )
