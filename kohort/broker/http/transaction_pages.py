"""GET /transactions and related pages: open transactions, their clients, and the partitions they
hold back.

DescribeProducers returns a producer id, and the coordinator knows the transactional id; these pages
combine them with the client that sent the requests. Shapes are documented in docs/exactly-once.md.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

from kohort.broker.core.partition.transactions import OpenTransaction
from kohort.broker.core.transaction.requests import TopicPartition
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.http.json_parts import SLICE_MS, Items, answer, dump
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse, Page
from kohort.broker.http.queries import Query
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.broker.transactions.events import IdCounts
from kohort.broker.transactions.host import TransactionHost
from kohort.protocol.errors import ErrorCode, KafkaError

LISTED_DEFAULT: Final = 1_000
LISTED_MAX: Final = 10_000
PARTITIONS_LISTED: Final = 100
"""Maximum partitions listed for each transaction in a list."""

_DIGITS_MAX: Final = 9

Json: TypeAlias = dict[str, Any]


class FindsPartitions(Protocol):
    """The part of the topics that these pages need."""

    def get(self, name: str) -> Topic | None: ...

    def partition(self, name: str, index: int) -> Partition | None: ...

    def is_on_disk(self, name: str, index: int) -> bool: ...


class TransactionPages:
    """The pages of one broker. They run one at a time, like those about groups."""

    def __init__(self, host: TransactionHost, topics: FindsPartitions, clock: Clock) -> None:
        self._host = host
        self._topics = topics
        self._clock = clock
        self._lock = asyncio.Lock()

    def pages(self) -> dict[str, Page]:
        """Return all pages, by path."""
        return {
            "/transactions": self.list_open,
            "/transactions/{id}": self.describe,
            "/topics/{topic}/{partition}/transactions": self.partition,
        }

    async def list_open(self, request: HttpRequest) -> HttpResponse:
        """GET /transactions?limit=N: open transactions, the oldest first."""
        async with self._lock:
            limit = Query(request.query, "limit").number(
                "limit", LISTED_DEFAULT, at_most=LISTED_MAX
            )
            opened, wall_ms = self._host.ids.open(), self._clock.wall_ms()
            head = dump({"at_ms": wall_ms, "total": len(opened)})[:-1]
            items = Items(Slice(self._clock, SLICE_MS))
            for one in list(islice(opened, limit)):
                if items.is_full:
                    break
                if one.is_open:
                    await items.add(dump(self._open_json(one, wall_ms, PARTITIONS_LISTED)))
            return answer([head, b',"transactions":[', *items.parts, b"]}"])

    async def describe(self, request: HttpRequest) -> HttpResponse:
        """GET /transactions/{id}: one transactional id, and the outcomes of its transactions."""
        (name,) = request.path_values
        Query(request.query)
        error = self._host.error(name)
        if error:
            return _unavailable(error)
        one = self._host.transactional_id(name)
        if one is None or one.record is None:
            text = "no such transactional id; /transactions lists those with a transaction"
            return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
        wall_ms = self._clock.wall_ms()
        counts = self._host.counts.by_id.get(name) or IdCounts()
        told = {
            "at_ms": wall_ms,
            **self._open_json(one, wall_ms, LISTED_MAX),
            "last_update_ms": one.record.last_update_ms,
            "since_start": asdict(counts),
        }
        return answer([dump(told)])

    async def partition(self, request: HttpRequest) -> HttpResponse:
        """GET /topics/{topic}/{partition}/transactions?limit=N: the open transactions that hold
        back read_committed consumers of a partition, by first offset.
        """
        async with self._lock:
            topic, index = request.path_values
            if not (index.isascii() and index.isdigit() and len(index) <= _DIGITS_MAX):
                raise BadRequestError("a partition is a number from 0")
            limit = Query(request.query, "limit").number(
                "limit", LISTED_DEFAULT, at_most=LISTED_MAX
            )
            try:
                found = self._find(topic, int(index))
                if found is None:
                    return HttpResponse.error(HTTPStatus.NOT_FOUND, "there is no such partition")
                opened = found.open_transactions(limit)
                end, stable = found.high_watermark, found.last_stable_offset
                total = found.open_transaction_count
            except KafkaError as error:
                return _unavailable(error.code)
            time_slice, wall_ms = Slice(self._clock, SLICE_MS), self._clock.wall_ms()
            owners = await self._owners({one.producer_id for one in opened}, time_slice)
            told = {
                "topic": topic,
                "partition": int(index),
                "at_ms": wall_ms,
                "high_watermark": end,
                "last_stable_offset": stable,
                "total": total,
            }
            items = Items(time_slice)
            for one in opened:
                if items.is_full:
                    break
                await items.add(dump(self._held_json(one, owners.get(one.producer_id), wall_ms)))
            return answer([dump(told)[:-1], b',"open":[', *items.parts, b"]}"])

    def _find(self, topic: str, index: int) -> Partition | None:
        found = self._topics.get(topic)
        # Partitions of internal topics get a directory when they are used; reading must not make
        # one.
        if found is None or (found.is_internal and not self._topics.is_on_disk(topic, index)):
            return None
        return self._topics.partition(topic, index)

    async def _owners(
        self, producer_ids: set[int], time_slice: Slice
    ) -> dict[int, TransactionalId]:
        """Return the known ids whose open transactions belong to these producers."""
        owners: dict[int, TransactionalId] = {}
        if producer_ids:
            for one in list(self._host.ids.open()):
                if one.record is not None and one.record.producer_id in producer_ids:
                    owners[one.record.producer_id] = one
                await time_slice.pause()
        return owners

    def _open_json(self, one: TransactionalId, wall_ms: int, partitions_max: int) -> Json:
        record = one.record
        assert record is not None
        places = one.unmarked
        return {
            "transactional_id": one.transactional_id,
            "state": record.state.value,
            "producer_id": record.producer_id,
            "producer_epoch": record.producer_epoch,
            **_who(one),
            **_times(one, wall_ms),
            "is_stuck": self._host.is_stuck(one.transactional_id),
            "partition_count": len(places),
            "partitions": _by_topic(islice(places, partitions_max)),
        }

    def _held_json(
        self, found: OpenTransaction, owner: TransactionalId | None, wall_ms: int
    ) -> Json:
        told: Json = {
            "first_offset": found.first_offset,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "last_batch_ms": found.last_ms,
        }
        if owner is None or owner.record is None:
            return {**told, "transactional_id": None}
        return {
            **told,
            "transactional_id": owner.transactional_id,
            "state": owner.record.state.value,
            **_who(owner),
            **_times(owner, wall_ms),
        }


def _who(one: TransactionalId) -> Json:
    client = one.client
    return {
        "client_id": None if client is None else client.client_id,
        "client_host": None if client is None else client.host,
    }


def _times(one: TransactionalId, wall_ms: int) -> Json:
    assert one.record is not None
    start_ms = one.record.start_ms if one.is_open else None
    return {
        "start_ms": start_ms,
        "age_ms": None if start_ms is None else max(0, wall_ms - start_ms),
        "timeout_ms": one.record.timeout_ms,
    }


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        found.setdefault(topic, []).append(index)
    return found


def _unavailable(error: ErrorCode) -> HttpResponse:
    text = f"nothing can be said about this now: {error.name}"
    return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text)
