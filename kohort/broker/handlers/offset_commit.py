"""OffsetCommit (key 8): a member, or a client outside of all groups, records how far it has read.

v2-10. v5 drops the retention time, v6 leader epoch, v7 instance id, v8 flexible, v9 may say that
there is no such group, v10 topic ids instead of names. Partitions that do not exist are answered
here; the rules for the others are in :mod:`kohort.broker.core.group.offsets.commit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from kohort.broker.core.group.requests import CommitRequest, CommitResult, OffsetToCommit
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.failures import BY_NAME_OR_ID, Mirror, OnError, same
from kohort.broker.dispatch.registry import handles
from kohort.broker.runtime.answer import Later
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic

NAMES_GROUP_ERRORS_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10

ANSWERS_KEPT_MAX: Final = 500
"""Answers to commits that were stored."""

PARTITIONS_KEPT_MAX: Final = 16
"""In a commit whose answer is kept, all of topics that there are: with the longest names, what is
kept is some 5 MB."""

_Places: TypeAlias = tuple[tuple[str, bytes, tuple[int, ...]], ...]
"""Name, id and partitions of each topic, as they were asked for."""


@handles(
    OffsetCommitRequest,
    versions="2-10",
    on_error=OnError(
        Mirror(
            "topics",
            "topics",
            BY_NAME_OR_ID,
            Mirror("partitions", "partitions", same("partition_index")),
        )
    ),
)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | EncodedResponse | Later[OffsetCommitResponse | EncodedResponse]:
    """Answered when what could be stored is durable."""
    version = ctx.header.api_version
    offsets: list[OffsetToCommit] = []
    refusals: list[ErrorCode] = []
    """One for each partition; NONE where the group is to decide."""
    by_id = version >= TOPIC_IDS_SINCE
    for asked in request.topics:
        look_up(ctx, asked, offsets, refusals, by_id=by_id)
    if not offsets:
        return _respond(_places(request), refusals)

    def complete(result: CommitResult) -> OffsetCommitResponse | EncodedResponse:
        assert len(result.errors) == len(offsets)
        places = _places(request)
        if any(result.errors) or len(offsets) != len(refusals):
            decided = iter(result.errors)
            return _respond(places, [refusal or next(decided) for refusal in refusals])
        if len(offsets) <= PARTITIONS_KEPT_MAX:
            return _all_is_stored(version, places)
        return _respond(places, result.errors)

    ticket = ctx.broker.groups.commit(
        request.group_id,
        CommitRequest(
            tuple(offsets),
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            retention_time_ms=request.retention_time_ms,
        ),
        names_group_errors=version >= NAMES_GROUP_ERRORS_SINCE,
    )
    return ticket.then(complete)


def look_up(
    ctx: RequestContext,
    asked: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    refusals: list[ErrorCode],
    *,
    by_id: bool,
) -> None:
    """Add what is to be stored for this topic, and what is not: one refusal for each partition,
    NONE for those that are in `offsets`.
    """
    if by_id:
        topic, error = ctx.broker.topics.get_by_id(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = ctx.broker.topics.get(asked.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        refusals += [error] * len(asked.partitions)
        return
    name, topic_id, count = topic.name, topic.topic_id, len(topic.partitions)
    for partition in asked.partitions:
        index = partition.partition_index
        if not 0 <= index < count:
            refusals.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        refusals.append(ErrorCode.NONE)
        offsets.append(
            OffsetToCommit(
                name,
                index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                topic_id,
            )
        )


def _places(request: OffsetCommitRequest) -> _Places:
    """Returns the places asked for; like Kafka, it says nothing of a topic without partitions."""
    places = []
    for asked in request.topics:
        if asked.partitions:
            # Not a comprehension, which would be a call more for each commit.
            indexes: list[int] = []
            for partition in asked.partitions:
                indexes.append(partition.partition_index)  # noqa: PERF401
            places.append((asked.name, asked.topic_id, tuple(indexes)))
    return tuple(places)


@lru_cache(maxsize=ANSWERS_KEPT_MAX)
def _all_is_stored(version: int, places: _Places) -> EncodedResponse:
    """A client commits the same partitions again and again."""
    no_errors = [ErrorCode.NONE] * sum(len(partitions) for *_, partitions in places)
    return EncodedResponse(codec(OffsetCommitResponse, version).encode(_respond(places, no_errors)))


def _respond(places: _Places, errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
    """`errors` are those of all partitions. What is asked of a topic in several places is answered
    in one.
    """
    topics: dict[str | bytes, OffsetCommitResponseTopic] = {}
    left = iter(errors)
    for name, topic_id, partitions in places:
        topic = topics.get(name or topic_id)
        if topic is None:
            topic = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            topics[name or topic_id] = topic
        topic.partitions += [
            OffsetCommitResponsePartition(partition_index=index, error_code=next(left))
            for index in partitions
        ]
    return OffsetCommitResponse(topics=list(topics.values()))
