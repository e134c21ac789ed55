"""Transactional producers of both flows, as real ones behave: they retry what was not answered,
abort what they cannot finish, are replaced by others of the same id, and do not always notice.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

from kohort.groups.requests import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.simulation.transactions.ledger import NEVER, Ledger, Sent, Transaction
from tests.support import messages as m

NONE: Final = ErrorCode.NONE
OFFSETS: Final = "offsets"
KEYS: Final = (b"a", b"b", b"c", b"d")
WRITTEN_MS: Final = 1_700_000_000_000
"""When a virtual clock begins: no record is too old to be kept."""
_AGAIN: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
PLACES: Final = (
    *(TopicPartition("t", 0), TopicPartition("t", 1)),
    *(TopicPartition("c", 0), TopicPartition("d", 0)),
)


class Refused(Exception):  # noqa: N818 - an answer.
    """The broker says no, and will say so again."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = code


class Surroundings(Protocol):
    """Where clients live."""

    @property
    def ledger(self) -> Ledger: ...

    async def ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - its answer.
        """What a broker answers, in whichever of its lives."""
        ...


class Client:
    """One producer of an id."""

    def __init__(self, world: Surroundings, name: str, flow: int, random: Random) -> None:
        self.world = world
        self.name = name
        self.flow = flow
        self.producer = (-1, -1)
        self.is_replaced = False
        """Another producer of the id is at work, of which this one learns when it is refused."""
        self._random = random
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()
        self._versions = _versions(flow, random)

    @property
    def ledger(self) -> Ledger:
        return self.world.ledger

    async def live(self) -> None:
        """Transaction after transaction, until replaced."""
        await self.init()
        while True:
            await self._sleep(2_000)
            try:
                await self.transact()
            except Refused:
                self.ledger.counts["refused"] += 1
                if self.is_replaced:
                    return
                await self._recover()

    async def _recover(self) -> None:
        """Recover as libraries do: ask for an epoch, with what one has, or as a new producer."""
        keeps = self._random.random() < 0.5
        try:
            await self.init(keeps_producer=keeps)
        except Refused:
            await self.init()

    async def init(self, *, keeps_producer: bool = False) -> None:
        pid, epoch = self.producer if keeps_producer else (-1, -1)
        request = m.InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self._random.choice([3_000, 20_000]),
            producer_id=pid,
            producer_epoch=epoch,
        )
        answer = await self._ask(request, self._versions["init"])
        self._take((answer.producer_id, answer.producer_epoch))
        self._added.clear()

    async def transact(self) -> None:
        """One transaction. Raises Refused, having left it as it is."""
        random = self._random
        one = self.ledger.begin(self.name, self.flow)
        one.producer = self.producer
        try:
            for _ in range(random.randrange(4)):
                await self.produce(one, random.sample(PLACES, random.choice([1, 1, 2, 3])))
                if random.random() < 0.2:
                    await self._sleep(1_000)
            if random.random() < 0.6:
                await self.send_position(one)
        except Refused as refused:
            if refused.code in _FATAL:
                raise
            await self.end(one, commit=False)
            if self.flow == 1:
                # Whether all partitions of a refused request refused it is not worth knowing.
                await self.init(keeps_producer=True)
            return
        fate = random.random()
        if fate < 0.06:
            # It hangs until it is overdue, or until another producer of the id comes.
            await self._sleep(25_000)
        if fate < 0.12:
            raise Refused(ErrorCode.TRANSACTION_ABORTABLE)
        has_sent = one.records or one.position_acked != NEVER
        await self.end(one, commit=bool(has_sent) and fate < 0.75)

    # Requests.

    async def produce(self, one: Transaction, places: Sequence[TopicPartition]) -> None:
        """Records into each of these partitions, in one request."""
        if self.flow == 1:
            await self._add(places)
        sent = {place: self._records(one, place) for place in places}
        topics: dict[str, list[m.PartitionProduceData]] = {}
        for place, records in sent.items():
            batch = encode_batch(
                [Record(one.value.encode(), key=one.key, timestamp=WRITTEN_MS) for one in records],
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                base_sequence=self._sequences.get(place, 0),
                is_transactional=True,
            )
            data = m.PartitionProduceData(index=place.partition, records=memoryview(batch))
            topics.setdefault(place.topic, []).append(data)
        request = m.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                m.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()
            ],
        )
        asked = self.ledger.note("produce")
        answer = await self._ask(request, self._versions["produce"], _produce_codes)
        self.ledger.check_allowed(self, self.name, asked, "Produce")
        told = self.ledger.note("produced")
        for topic in answer.responses:
            for partition in topic.partition_responses:
                place = TopicPartition(topic.name, partition.index)
                for number, record in enumerate(sent[place]):
                    record.acked, record.offset = told, partition.base_offset + number
                self._sequences[place] = self._sequences.get(place, 0) + len(sent[place])

    def _records(self, one: Transaction, place: TopicPartition) -> list[Sent]:
        return [
            self.ledger.send(one, place, self._random.choice(KEYS))
            for _ in range(self._random.choice([1, 1, 2]))
        ]

    async def _add(self, places: Sequence[TopicPartition]) -> None:
        new = [place for place in places if place not in self._added]
        if not new:
            return
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[
                m.AddPartitionsToTxnTopic(
                    name=name, partitions=[one.partition for one in new if one.topic == name]
                )
                for name in dict.fromkeys(one.topic for one in new)
            ],
        )
        asked = self.ledger.note("add")
        await self._ask(request, self._versions["add"], _add_codes)
        self.ledger.check_allowed(self, self.name, asked, "AddPartitionsToTxn")
        self._added.update(new)

    async def send_position(self, one: Transaction) -> None:
        """The group's position."""
        pid, epoch = self.producer
        if self.flow == 1 and OFFSETS not in self._added:
            added = m.AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=pid,
                producer_epoch=epoch,
                group_id=self.name,
            )
            asked = self.ledger.note("add")
            await self._ask(added, self._versions["add_offsets"])
            self.ledger.check_allowed(self, self.name, asked, "AddOffsetsToTxn")
            self._added.add(OFFSETS)
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=pid,
            producer_epoch=epoch,
            topics=[
                m.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        m.TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=one.position,
                            committed_metadata=None,
                        )
                    ],
                )
            ],
        )
        asked = self.ledger.note("position")
        await self._ask(request, self._versions["offsets"], _offsets_codes)
        self.ledger.check_allowed(self, self.name, asked, "TxnOffsetCommit")
        one.position_acked = self.ledger.note("positioned")

    async def end(self, one: Transaction, *, commit: bool) -> None:
        request = m.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commit,
        )
        if self.flow == 1 and not self._added:
            return
        asked = self.ledger.note("end")
        if commit:
            one.commit_asked = asked
        answer = await self._ask(request, self._versions["end"])
        self.ledger.check_allowed(self, self.name, asked, "EndTxn")
        if commit:
            one.committed = self.ledger.note("committed")
        else:
            one.aborted = self.ledger.note("aborted")
        if self.flow == 2:
            self._take((answer.producer_id, answer.producer_epoch))
        self._added.clear()

    def _take(self, producer: tuple[int, int]) -> None:
        """Take what the broker gives: sequences begin again with each epoch."""
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer
        self.ledger.note_given(self, self.name, producer)

    async def _ask(self, request: Any, version: int, codes: Any = None) -> Any:  # noqa: ANN401
        """The answer without an error; what may pass is asked again. Raises Refused."""
        wrong: list[int] = []
        for _ in range(200):
            answer = await self.world.ask(request, version)
            found = [answer.error_code] if codes is None else codes(answer)
            wrong = [code for code in found if code != NONE]
            if not wrong:
                return answer
            if wrong[0] not in _AGAIN:
                raise Refused(wrong[0])
            await self._sleep(100)
        raise AssertionError(f"{request} is never answered: {wrong}")

    async def _sleep(self, at_most_ms: int) -> None:
        await asyncio.sleep(self._random.randrange(1, at_most_ms) / 1_000)


_FATAL: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


def _produce_codes(answer: Any) -> list[int]:  # noqa: ANN401
    return [one.error_code for topic in answer.responses for one in topic.partition_responses]


def _add_codes(answer: Any) -> list[int]:  # noqa: ANN401
    return [
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]


def _offsets_codes(answer: Any) -> list[int]:  # noqa: ANN401
    return [one.error_code for topic in answer.topics for one in topic.partitions]


def _versions(flow: int, random: Random) -> dict[str, int]:
    if flow == 1:
        return {
            "init": random.choice([3, 4]),
            "add": random.choice([0, 3]),
            "add_offsets": random.choice([0, 3]),
            "produce": random.choice([7, 10]),
            "offsets": random.choice([3, 4]),
            "end": random.choice([1, 4]),
        }
    return {"init": 5, "produce": 12, "offsets": 5, "end": 5}
