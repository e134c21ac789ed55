"""GET /transactions and related pages: open transactions, their clients, and the partitions that
they block for read_committed consumers.

DescribeProducers returns producer ids, and the coordinator has transactional ids; these pages
combine them with the clients that sent the requests. docs/exactly-once.md documents the formats.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, TypeAlias

from kohort.broker.core.partition.transactions import OpenTransaction
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.http.json_parts import SLICE_MS, Items, answer, dump
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from kohort.broker.http.routes import Query
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.events import IdCounts
from kohort.broker.transactions.host import TransactionHost
from kohort.protocol.errors import ErrorCode, KafkaError

LISTED_DEFAULT: Final = 1_000
LISTED_MAX: Final = 10_000
PARTITIONS_LISTED: Final = 100
"""Maximum number of partitions shown for each transaction in a list."""

_DIGITS_MAX: Final = 9

Json: TypeAlias = dict[str, Any]


class TransactionPages:
    """The transaction pages of one broker. Pages that list several transactions run one at a time,
    like those of `GroupPages`.
    """

    def __init__(self, host: TransactionHost, topics: TopicManager, clock: Clock) -> None:
        self._host = host
        self._topics = topics
        self._clock = clock
        self._lock = asyncio.Lock()

    async def list_open(self, request: HttpRequest) -> HttpResponse:
        """GET /transactions?limit=N: open transactions, the oldest first."""
        async with self._lock:
            limit = Query(request.query, "limit").number(
                "limit", LISTED_DEFAULT, at_most=LISTED_MAX
            )
            opened, wall_ms = self._host.ids.open(), self._clock.wall_ms()
            head = dump({"at_ms": wall_ms, "total": len(opened)})[:-1]
            items = Items(Slice(self._clock, SLICE_MS))
            for transactional_id in list(islice(opened, limit)):
                if items.is_full:
                    break
                if transactional_id.is_open:
                    item = self._open_json(transactional_id, wall_ms, PARTITIONS_LISTED)
                    await items.add(dump(item))
            return answer([head, b',"transactions":[', *items.parts, b"]}"])

    async def describe(self, request: HttpRequest) -> HttpResponse:
        """GET /transactions/{id}: one transactional id, and the outcomes of its transactions."""
        (name,) = request.path_values
        Query(request.query)
        error = self._host.error(name)
        if error:
            return _unavailable(error)
        transactional_id = self._host.transactional_id(name)
        if transactional_id is None or transactional_id.record is None:
            text = "unknown transactional id; /transactions lists those with an open transaction"
            return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
        wall_ms = self._clock.wall_ms()
        counts = self._host.counts.by_id.get(name) or IdCounts()
        view = {
            "at_ms": wall_ms,
            **self._open_json(transactional_id, wall_ms, LISTED_MAX),
            "last_update_ms": transactional_id.record.last_update_ms,
            "since_start": asdict(counts),
        }
        return answer([dump(view)])

    async def partition(self, request: HttpRequest) -> HttpResponse:
        """GET /topics/{topic}/{partition}/transactions?limit=N: the open transactions that hold
        back read_committed consumers of a partition, by first offset.
        """
        async with self._lock:
            topic, index = request.path_values
            if not (index.isascii() and index.isdigit() and len(index) <= _DIGITS_MAX):
                raise BadRequestError("the partition must be a number")
            limit = Query(request.query, "limit").number(
                "limit", LISTED_DEFAULT, at_most=LISTED_MAX
            )
            try:
                partition = self._find(topic, int(index))
                if partition is None:
                    return HttpResponse.error(HTTPStatus.NOT_FOUND, "unknown topic or partition")
                opened = partition.open_transactions(limit)
                end, stable = partition.high_watermark, partition.last_stable_offset
                total = partition.open_transaction_count
            except KafkaError as error:
                return _unavailable(error.code)
            time_slice, wall_ms = Slice(self._clock, SLICE_MS), self._clock.wall_ms()
            owners = await self._owners({each.producer_id for each in opened}, time_slice)
            view = {
                "topic": topic,
                "partition": int(index),
                "at_ms": wall_ms,
                "high_watermark": end,
                "last_stable_offset": stable,
                "total": total,
            }
            items = Items(time_slice)
            for transaction in opened:
                if items.is_full:
                    break
                owner = owners.get(transaction.producer_id)
                await items.add(dump(self._held_json(transaction, owner, wall_ms)))
            return answer([dump(view)[:-1], b',"open":[', *items.parts, b"]}"])

    def _find(self, topic: str, index: int) -> Partition | None:
        known = self._topics.get(topic)
        # Opening a partition of an internal topic creates its directory, which reading must not do.
        if known is None or (known.is_internal and not self._topics.is_on_disk(topic, index)):
            return None
        return self._topics.partition(topic, index)

    async def _owners(
        self, producer_ids: set[int], time_slice: Slice
    ) -> dict[int, TransactionalId]:
        """Return the transactional ids of these producers' open transactions, by producer id."""
        owners: dict[int, TransactionalId] = {}
        if producer_ids:
            for each in list(self._host.ids.open()):
                if each.record is not None and each.record.producer_id in producer_ids:
                    owners[each.record.producer_id] = each
                await time_slice.pause()
        return owners

    def _open_json(self, owner: TransactionalId, wall_ms: int, partitions_max: int) -> Json:
        record = owner.record
        assert record is not None
        partitions = owner.unmarked
        return {
            "transactional_id": owner.transactional_id,
            "state": record.state.value,
            "producer_id": record.producer_id,
            "producer_epoch": record.producer_epoch,
            **_client(owner),
            **_times(owner, wall_ms),
            "is_stuck": self._host.is_stuck(owner.transactional_id),
            "partition_count": len(partitions),
            "partitions": _by_topic(islice(partitions, partitions_max)),
        }

    def _held_json(
        self, transaction: OpenTransaction, owner: TransactionalId | None, wall_ms: int
    ) -> Json:
        view: Json = {
            "first_offset": transaction.first_offset,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "last_batch_ms": transaction.last_ms,
        }
        if owner is None or owner.record is None:
            return {**view, "transactional_id": None}
        return {
            **view,
            "transactional_id": owner.transactional_id,
            "state": owner.record.state.value,
            **_client(owner),
            **_times(owner, wall_ms),
        }


def _client(owner: TransactionalId) -> Json:
    client = owner.client
    return {
        "client_id": None if client is None else client.client_id,
        "client_host": None if client is None else client.host,
    }


def _times(owner: TransactionalId, wall_ms: int) -> Json:
    assert owner.record is not None
    start_ms = owner.record.start_ms if owner.is_open else None
    return {
        "start_ms": start_ms,
        "age_ms": None if start_ms is None else max(0, wall_ms - start_ms),
        "timeout_ms": owner.record.timeout_ms,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        indexes.setdefault(topic, []).append(index)
    return indexes


def _unavailable(error: ErrorCode) -> HttpResponse:
    text = f"unavailable now: {error.name}"
    return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text)
