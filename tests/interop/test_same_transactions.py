"""Transactional ids live the same life on Kafka and on Kohort: random walks over their requests.

What is still being ended is asked again on both, so that nothing hangs on how fast a broker is.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES, schema_of
from tests.interop.same_answers.pair import Twins
from tests.support import messages as m
from tests.support.network.wire import RawClient

TIMEOUT_S: Final = 30
TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Side:
    """One broker, with names for the producer ids that it has given out."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port)
        self.pids: list[int] = []

    def ask(self, request: object, version: int) -> Any:  # noqa: ANN401 - any response.
        key = schema_of(type(request)).key
        assert key is not None
        return self.client.call(request, version, RESPONSES[key])

    def settled(self, request: object, version: int, error_of: Callable[[Any], int]) -> Any:  # noqa: ANN401 - as above.
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = self.ask(request, version)
            if error_of(response) not in TRIED_AGAIN or time.monotonic() > deadline:
                return response
            time.sleep(0.002)

    def alias(self, producer_id: int) -> int:
        """How the walk calls a producer id: -1, or a number from 0."""
        if producer_id == -1:
            return -1
        if producer_id not in self.pids:
            self.pids.append(producer_id)
        return self.pids.index(producer_id)

    def real(self, alias: int) -> int:
        return self.pids[alias] if 0 <= alias < len(self.pids) else alias


class Walk:
    """One id on both brokers."""

    def __init__(self, random: Random, sides: tuple[Side, Side], topic: str) -> None:
        self.random = random
        self.sides = sides
        self.topic = topic
        self.name = f"walk-{uuid.uuid4().hex[:12]}"
        self.trace: list[str] = []
        self.producer = (-1, 0)
        """Alias and epoch that were told last."""

    def step(self) -> None:
        kind = self.random.choice(
            ["init", "init", "add", "add", "add", "several", "offsets", "end", "end", "end"]
        )
        getattr(self, f"_{kind}")()
        self._compare("state", self._look)

    def _compare(self, what: str, ask: Callable[[Side], object]) -> Any:  # noqa: ANN401
        kafka, kohort = (ask(side) for side in self.sides)
        self.trace.append(f"{what}: {kafka}")
        assert kohort == kafka, "\n".join([*self.trace, f"and here {kohort}"])
        return kafka

    def _some_producer(self) -> tuple[int, int]:
        alias, epoch = self.producer
        epoch += self.random.choice([0, 0, 0, 0, -1, -1, -2, 1])
        if self.random.random() < 0.1:
            alias = self.random.choice([alias - 1, 10**12])
        return alias, max(epoch, 0)

    def _init(self) -> None:
        version = self.random.randint(0, 5)
        alias, epoch = -1, -1
        if version >= 3 and self.random.random() < 0.6:
            alias, epoch = self._some_producer()
        timeout_ms = self.random.choice([60_000, 30_000, 900_000, 900_001, 0])

        def ask(side: Side) -> object:
            request = m.InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=timeout_ms,
                producer_id=side.real(alias),
                producer_epoch=epoch,
            )
            response = side.settled(request, version, lambda one: one.error_code)
            return response.error_code, side.alias(response.producer_id), response.producer_epoch

        what = f"InitProducerId v{version} {alias} {epoch} {timeout_ms} ms"
        error, alias, epoch = self._compare(what, ask)
        if not error:
            self.producer = alias, epoch

    def _topics(self) -> list[m.AddPartitionsToTxnTopic]:
        indexes = self.random.sample(range(3), self.random.choice([0, 1, 1, 2]))
        if not indexes:
            return []
        if self.random.random() < 0.1:
            indexes.append(self.random.choice([7, indexes[0]]))
        return [m.AddPartitionsToTxnTopic(name=self.topic, partitions=indexes)]

    def _add(self) -> None:
        version = self.random.randint(0, 3)
        (alias, epoch), topics = self._some_producer(), self._topics()

        def error_of(response: Any) -> int:  # noqa: ANN401
            found = response.results_by_topic_v3_and_below
            return found[0].results_by_partition[0].partition_error_code if found else 0

        def ask(side: Side) -> object:
            request = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=side.real(alias),
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            if not topics:
                # The answer does not say that it was busy.
                self._wait_idle(side)
            response = side.settled(request, version, error_of)
            return sorted(
                (one.partition_index, one.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            )

        self._compare(f"AddPartitionsToTxn v{version} {alias} {epoch} {topics}", ask)

    def _several(self) -> None:
        version = self.random.randint(4, 5)
        (alias, epoch), topics = self._some_producer(), self._topics()
        verify_only = self.random.random() < 0.5
        if not topics:
            return

        def error_of(response: Any) -> int:  # noqa: ANN401
            found = response.results_by_transaction[0].topic_results
            return int(found[0].results_by_partition[0].partition_error_code)

        def ask(side: Side) -> object:
            request = m.AddPartitionsToTxnRequest(
                transactions=[
                    m.AddPartitionsToTxnTransaction(
                        transactional_id=self.name,
                        producer_id=side.real(alias),
                        producer_epoch=epoch,
                        verify_only=verify_only,
                        topics=topics,
                    )
                ]
            )
            response = side.settled(request, version, error_of)
            return response.error_code, sorted(
                (one.partition_index, one.partition_error_code)
                for topic in response.results_by_transaction[0].topic_results
                for one in topic.results_by_partition
            )

        what = f"AddPartitionsToTxn v{version} {alias} {epoch} {verify_only} {topics}"
        self._compare(what, ask)

    def _offsets(self) -> None:
        version = self.random.randint(0, 4)
        alias, epoch = self._some_producer()

        def ask(side: Side) -> object:
            request = m.AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=side.real(alias),
                producer_epoch=epoch,
                group_id="walkers",
            )
            return side.settled(request, version, lambda one: one.error_code).error_code

        self._compare(f"AddOffsetsToTxn v{version} {alias} {epoch}", ask)

    def _end(self) -> None:
        version = self.random.choice([0, 1, 2, 3, 4, 5, 5, 5, 5])
        alias, epoch = self._some_producer()
        commit = self.random.random() < 0.5

        def ask(side: Side) -> object:
            request = m.EndTxnRequest(
                transactional_id=self.name,
                producer_id=side.real(alias),
                producer_epoch=epoch,
                committed=commit,
            )
            response = side.settled(request, version, lambda one: one.error_code)
            return response.error_code, side.alias(response.producer_id), response.producer_epoch

        error, alias, epoch = self._compare(f"EndTxn v{version} {alias} {epoch} {commit}", ask)
        if not error and version >= 5:
            self.producer = alias, epoch

    def _describe(self, side: Side) -> Any:  # noqa: ANN401
        request = m.DescribeTransactionsRequest(transactional_ids=[self.name])
        return side.settled(
            request, 0, lambda one: one.transaction_states[0].error_code
        ).transaction_states[0]

    def _wait_idle(self, side: Side) -> Any:  # noqa: ANN401
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self._describe(side)).transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return found

    def _look(self, side: Side) -> object:
        found = self._wait_idle(side)
        return (
            found.error_code,
            found.transaction_state,
            found.transaction_timeout_ms,
            side.alias(found.producer_id) if not found.error_code else None,
            found.producer_epoch,
            found.transaction_start_time_ms > 0,
            sorted((one.topic, sorted(one.partitions)) for one in found.topics),
        )


def _both(twins: Twins) -> tuple[Side, Side]:
    sides = Side(twins.kafka.port), Side(twins.kohort.port)
    for side in sides:
        # A real Kafka makes its topics when it is asked for them, and then takes its time.
        for key_type, key in ((0, "walkers"), (1, "any")):
            request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            side.settled(request, 4, lambda one: one.coordinators[0].error_code)
        first = m.InitProducerIdRequest(transactional_id="any", transaction_timeout_ms=1_000)
        side.settled(first, 2, lambda one: one.error_code)
    return sides


def _walk(twins: Twins, seeds: Iterable[int]) -> None:
    sides = _both(twins)
    topic = f"walked-{uuid.uuid4().hex[:8]}"
    try:
        for side in sides:
            wanted = m.CreatableTopic(
                name=topic, num_partitions=3, replication_factor=1, assignments=[], configs=[]
            )
            side.ask(m.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        for seed in seeds:
            random = Random(seed)
            for _ in range(4):
                walk = Walk(random, sides, topic)
                for _ in range(25):
                    walk.step()
    finally:
        for side in sides:
            side.client.close()


def test_walks(twins: Twins) -> None:
    _walk(twins, range(4))


@pytest.mark.long
def test_long_walks(twins: Twins) -> None:
    _walk(twins, range(100, 1_100))
