"""What clients of each version are told of the transactions' errors."""

from typing import Any, cast

import pytest

from kohort.broker.core.transaction.client import Client
from kohort.broker.handlers import txn_offset_commit
from kohort.broker.handlers.shared import in_transaction
from kohort.broker.handlers.shared.in_transaction import Flow, TransactionalProducer
from kohort.protocol.errors import ErrorCode as E

PRODUCE, OFFSETS = in_transaction.FLOW, txn_offset_commit.FLOW


def producer(flow: Flow, version: int) -> TransactionalProducer:
    return TransactionalProducer(cast("Any", None), flow, version, "id", 7, 3, Client("c", "/h"))


@pytest.mark.parametrize(
    ("flow", "said", "told"),
    [
        (PRODUCE, E.TRANSACTION_ABORTABLE, {10: E.INVALID_TXN_STATE, 11: E.TRANSACTION_ABORTABLE}),
        (PRODUCE, E.INVALID_TXN_STATE, {10: E.INVALID_TXN_STATE, 12: E.INVALID_TXN_STATE}),
        (
            PRODUCE,
            E.CONCURRENT_TRANSACTIONS,
            {11: E.NOT_ENOUGH_REPLICAS, 12: E.CONCURRENT_TRANSACTIONS},
        ),
        (PRODUCE, E.NOT_COORDINATOR, {3: E.NOT_ENOUGH_REPLICAS, 13: E.NOT_ENOUGH_REPLICAS}),
        (PRODUCE, E.PRODUCER_FENCED, {3: E.INVALID_PRODUCER_EPOCH, 13: E.INVALID_PRODUCER_EPOCH}),
        (OFFSETS, E.TRANSACTION_ABORTABLE, {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE}),
        (OFFSETS, E.INVALID_TXN_STATE, {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE}),
        (OFFSETS, E.CONCURRENT_TRANSACTIONS, {0: E.CONCURRENT_TRANSACTIONS}),
        (OFFSETS, E.NOT_COORDINATOR, {0: E.NOT_COORDINATOR, 6: E.NOT_COORDINATOR}),
        (OFFSETS, E.PRODUCER_FENCED, {0: E.INVALID_PRODUCER_EPOCH, 6: E.INVALID_PRODUCER_EPOCH}),
    ],
)
def test_errors_are_told_as_the_version_knows_them(flow: Flow, said: E, told: dict[int, E]) -> None:
    assert {version: producer(flow, version).client_error(said).code for version in told} == told


@pytest.mark.parametrize(("flow", "since"), [(PRODUCE, 12), (OFFSETS, 5)])
def test_newer_requests_add_partitions_themselves(flow: Flow, since: int) -> None:
    assert not producer(flow, since - 1).adds
    assert producer(flow, since).adds
