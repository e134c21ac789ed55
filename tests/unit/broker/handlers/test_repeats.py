"""Requests that name the same again and again: an answer is no multiple of what there is."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.handlers.shared.checks import REPEATS_MAX
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kohort.protocol.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kohort.protocol.messages.transactions import DescribeProducersRequest, TopicRequest
from tests.support import messages as m
from tests.support.transactions.running_transactions import running_transactions


def configs(count: int) -> m.DescribeConfigsRequest:
    topic = m.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    return m.DescribeConfigsRequest(resources=[topic] * count)


def groups(count: int) -> m.DescribeGroupsRequest:
    return m.DescribeGroupsRequest(groups=["g"] * count)


def share_groups(count: int) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=["g"] * count)


def share_groups_with_offsets(count: int) -> DescribeShareGroupOffsetsRequest:
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    return DescribeShareGroupOffsetsRequest(groups=[group] * count)


def producers(count: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0] * count)])


def transactions(count: int) -> m.DescribeTransactionsRequest:
    return m.DescribeTransactionsRequest(transactional_ids=["id"] * count)


def groups_of_offsets(count: int) -> m.OffsetFetchRequest:
    return m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequestGroup(group_id="g", topics=None)] * count
    )


def offsets(count: int) -> m.OffsetFetchRequest:
    topic = m.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    group = m.OffsetFetchRequestGroup(group_id="g", topics=[topic] * count)
    return m.OffsetFetchRequest(groups=[group])


def offsets_of_the_group(count: int) -> m.OffsetFetchRequest:
    topic = m.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * count)
    return m.OffsetFetchRequest(group_id="g", topics=[topic])


ASKED: list[tuple[Callable[[int], Any], int, Callable[[Any], list[Any]]]] = [
    (configs, 4, lambda answer: answer.results),
    (groups, 5, lambda answer: answer.groups),
    (share_groups, 1, lambda answer: answer.groups),
    (share_groups_with_offsets, 1, lambda answer: answer.groups),
    (producers, 0, lambda answer: answer.topics[0].partitions),
    (transactions, 0, lambda answer: answer.transaction_states),
    (groups_of_offsets, 9, lambda answer: answer.groups),
    (offsets, 9, lambda answer: answer.groups[0].topics),
    (offsets_of_the_group, 7, lambda answer: answer.topics[0].partitions),
]


@pytest.mark.parametrize(("request_of", "version", "told"), ASKED)
async def test_the_same_is_told_a_few_times_and_not_a_thousand_times(
    request_of: Callable[[int], Any], version: int, told: Callable[[Any], list[Any]]
) -> None:
    async with running_transactions() as b:
        await b.init()
        answer = await b.ask(request_of(1 + REPEATS_MAX), version)
        assert len(told(answer)) == 1 + REPEATS_MAX
        with pytest.raises(KafkaError, match="repetitions") as refused:
            await b.ask(request_of(2 + REPEATS_MAX), version)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
