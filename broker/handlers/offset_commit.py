"""OffsetCommit (key 8): a member, or somebody outside of all groups, records how far it has read.

v2-10. v5 drops the retention time, v6 leader epoch, v7 instance id, v8 flexible, v9 may say that
there is no such group, v10 topic ids instead of names. Partitions that do not exist are answered
here; the rules for the others are in :mod:`broker.core.group.offsets`.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import Final

from broker.core.group.requests import CommitRequest, CommitResult, OffsetToCommit
from broker.handlers.context import RequestContext
from broker.handlers.registry import handles
from broker.topics.topic import Topic
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import dataclass
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NAMES_GROUP_ERRORS_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10


@dataclass(slots=True)
class _Draft:
    """The answer so far, and what is left for the group to decide."""

    response: OffsetCommitResponse
    offsets: list[OffsetToCommit] = field(default_factory=list)
    open: list[OffsetCommitResponsePartition] = field(default_factory=list)
    """The answers to `offsets`."""
    topics: dict[str | bytes, OffsetCommitResponseTopic] = field(default_factory=dict)
    """The answers by name or id: what is asked of a topic in several places is answered in one."""

    def answers_of(self, asked: OffsetCommitRequestTopic) -> list[OffsetCommitResponsePartition]:
        """Where the answers about its partitions go."""
        key = asked.name or asked.topic_id
        if key not in self.topics:
            topic = OffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id, partitions=[]
            )
            self.topics[key] = topic
            self.response.topics.append(topic)
        return self.topics[key].partitions

    def complete(self, result: CommitResult) -> OffsetCommitResponse:
        """Fill in what the group says."""
        for answer, error in zip(self.open, result.errors, strict=True):
            answer.error_code = error
        return self.response


@handles(OffsetCommitRequest, versions="2-10")
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    """Answered when what could be stored is durable."""
    draft = _Draft(OffsetCommitResponse(topics=[]))
    for topic in request.topics:
        if topic.partitions:  # As Kafka, say nothing of those without.
            _add_topic(ctx, draft, topic)
    if not draft.offsets:
        return draft.response
    ticket = ctx.broker.groups.commit(
        request.group_id,
        CommitRequest(
            tuple(draft.offsets),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_time_ms=request.retention_time_ms,
        ),
        names_group_errors=ctx.api_version >= NAMES_GROUP_ERRORS_SINCE,
    )
    return ticket.then(draft.complete)


def _add_topic(ctx: RequestContext, draft: _Draft, asked: OffsetCommitRequestTopic) -> None:
    topic, error = _find_topic(ctx, asked)
    answers = draft.answers_of(asked)
    for partition in asked.partitions:
        index = partition.partition_index
        answer = OffsetCommitResponsePartition(partition_index=index, error_code=error)
        answers.append(answer)
        if topic is None:
            continue
        if not 0 <= index < len(topic.partitions):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        draft.open.append(answer)
        draft.offsets.append(
            OffsetToCommit(
                topic.name,
                index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                topic.topic_id,
            )
        )


def _find_topic(
    ctx: RequestContext, asked: OffsetCommitRequestTopic
) -> tuple[Topic | None, ErrorCode]:
    if ctx.api_version >= TOPIC_IDS_SINCE:
        topic = ctx.broker.topics.get_by_id(asked.topic_id)
        return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID
    topic = ctx.broker.topics.get(asked.name)
    return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
