"""One transaction, stopped at every point at which a process can be killed.

The disk is copied before each operation on it: what a process leaves behind that is killed there.
Which point that is, is read from the logs.
"""

import asyncio
from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from kohort.broker.core.transaction.states import TransactionState
from kohort.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.groups.requests import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import split_batches
from kohort.testing.simulated_filesystem import Operation
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.transactions.broker import (
    AFTER_ANSWERS_S,
    Broker,
    Disk,
    new_loop,
    settings,
)
from tests.simulation.transactions.clients import Client
from tests.simulation.transactions.ledger import NEVER, Ledger, Transaction
from tests.simulation.transactions.logs import Ids, Partition, read_log
from tests.simulation.transactions.world import OVERDUE_MS, State
from tests.support import messages as m

OWNER: Final = "one"
DATA: Final = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("c", 0))
OFFSETS: Final = TopicPartition(CONSUMER_OFFSETS, 0)
STATE_LOG: Final = TopicPartition(TRANSACTION_STATE, 0)
COMPACTED: Final = TopicPartition("c", 0)
_S = TransactionState


class Point(Enum):
    """Where the process was killed: after this, and before what follows."""

    INITIALIZED = "the record of InitProducerId, before its answer"
    ADDED = "the record that adds a partition, before the batch"
    APPENDED = "the batch, before its answer"
    POSITIONED = "the batch of TxnOffsetCommit, before its answer"
    OPEN = "everything, before the end"
    DECIDED = "Prepare*, before any marker"
    SOME_MARKED = "some markers"
    ALL_MARKED = "all markers, before Complete*"
    COMPLETE = "Complete*, before the answer"
    FENCED = "PrepareAbort of a fence or of a timeout, before Complete*"
    SWAPPING = "a swap of compacted segments has begun"
    TORN = "a part of the last batch of a log"


class Ending(Enum):
    COMMIT = "commit"
    ABORT = "abort"
    TIMEOUT = "timeout"
    FENCE = "fence"


class Content(Enum):
    DATA = "data"
    OFFSETS = "offsets"
    BOTH = "both"


class Scenario(NamedTuple):
    """What happens, but for the kill."""

    flow: int
    ending: Ending
    is_forced: bool
    content: Content

    def __str__(self) -> str:
        flush = "forced" if self.is_forced else "cached"
        return f"V{self.flow}-{self.ending.value}-{flush}-{self.content.value}"

    def points(self) -> set[Point]:
        """The points that occur with this ending and content."""
        found = set(Point) - {Point.APPENDED, Point.POSITIONED, Point.SOME_MARKED, Point.SWAPPING}
        if self.content is not Content.OFFSETS:
            found |= {Point.APPENDED, Point.SOME_MARKED, Point.SWAPPING}
        if self.content is not Content.DATA:
            found.add(Point.POSITIONED)
        if self.ending in {Ending.COMMIT, Ending.ABORT}:
            found.discard(Point.FENCED)
        return found


class Kill(NamedTuple):
    """A disk that a kill has left, and what was going on."""

    state: State
    point: Point | None
    asked: tuple[Any, int] | None
    """The request that was not answered, and its version."""
    producer: tuple[int, int]
    """Producer id and epoch as the client knew them."""
    offset: int = -1
    """Where the batch lies that was not answered."""


class Story:
    """A scenario that takes place; its kills are in `kills`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.ledger = Ledger()
        self.kills: list[Kill] = []
        self.transaction: Transaction | None = None
        self._clock = VirtualClock()
        self._loop = new_loop(self._clock, lambda: 0)
        self._disk = Disk()
        self._asked: tuple[Any, int] | None = None
        self._client = Client(self, OWNER, scenario.flow, Random(1))
        self._random = Random(2)
        self._sizes: dict[str, int] = {}
        self._answers = self._answers_before = 0
        """Answers by now, and by the operation before this one."""

    def run(self) -> None:
        """From the first request to the last answer."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - its answer.
        self._asked = request, version
        answer = await self._broker.ask(request, version)
        self._copy()
        self._answers += 1
        self._asked = None
        return answer

    async def _run(self) -> None:
        self._broker = Broker(self._disk, settings(is_forced=self.scenario.is_forced), self._clock)
        try:
            await self._broker.start()
            await self._take_place()
        finally:
            await self._broker.end()

    async def _take_place(self) -> None:
        self._disk.files.on_operation = self._on_operation
        client, content = self._client, self.scenario.content
        await client.init()
        rounds = 1 if content is Content.OFFSETS else ROUNDS
        for number in range(rounds):
            one = self.transaction = self.ledger.begin(OWNER, self.scenario.flow)
            if content is not Content.OFFSETS:
                await client.produce(one, DATA)
                await client.produce(one, DATA[:1])
            if content is not Content.DATA:
                await client.send_position(one)
            self._copy()
            client = await self._end(client, one)
            self._client = client
            if number == rounds - 1:
                # Compaction has its turn.
                await asyncio.sleep(5)
        self._copy()
        self._disk.files.on_operation = None

    async def _end(self, client: Client, one: Transaction) -> Client:
        match self.scenario.ending:
            case Ending.COMMIT | Ending.ABORT:
                await client.end(one, commit=self.scenario.ending is Ending.COMMIT)
                return client
            case Ending.TIMEOUT:
                await asyncio.sleep(OVERDUE_MS / 1_000)
                one.aborted = self.ledger.note("aborted")
            case Ending.FENCE:
                pass
        other = Client(self, OWNER, self.scenario.flow, Random(3))
        await other.init()
        one.aborted = min(one.aborted, self.ledger.note("aborted"))
        return other

    # Kills.

    def _on_operation(self, operation: Operation) -> None:
        if operation != "pread":
            self._copy()

    def _copy(self) -> None:
        state = self._state()
        logs = logs_of(state)
        point, offset = self._point(state, logs)
        producer = self._client.producer
        self.kills.append(Kill(state, point, self._asked, producer, offset))
        if point is Point.DECIDED and self.scenario.ending in {Ending.TIMEOUT, Ending.FENCE}:
            again = state._replace(files=state.files.copy())
            self.kills.append(Kill(again, Point.FENCED, self._asked, producer))
        torn = self._torn()
        if torn is not None:
            self.kills.append(Kill(torn, Point.TORN, self._asked, producer))

    def _state(self) -> State:
        return State.of(
            self._disk,
            self.ledger,
            self._clock.wall_ms(),
            has_lost_power=False,
            number=len(self.kills),
        )

    def _torn(self) -> State | None:
        """The same disk, with a part of the batch only that was written last."""
        files = self._disk.files
        grown = None
        for path in [path for path in files.paths() if path.endswith(".log")]:
            size = len(files.cached(path))
            if size > self._sizes.get(path, 0):
                grown = path
            self._sizes[path] = size
        is_answered = self._answers != self._answers_before
        self._answers_before = self._answers
        if grown is None or is_answered:
            return None
        sizes = [header.size_bytes for header, _ in split_batches(bytes(files.cached(grown)))]
        state = self._state()
        cut = self._sizes[grown] - self._random.randrange(1, sizes[-1])
        state.files.file(grown).truncate(cut)
        return state

    def _point(
        self, state: State, logs: dict[TopicPartition, Partition]
    ) -> tuple[Point | None, int]:
        """Which it is, and where the batch lies that was not answered."""
        if any(name.endswith((".swap", ".cleaned")) for name in state.files.paths()):
            return Point.SWAPPING, -1
        record = Ids(logs[STATE_LOG].batches).latest.get(OWNER)
        one = self.transaction
        if record is None or record.state is _S.EMPTY:
            is_given = record is not None and self._asked is not None
            return (Point.INITIALIZED if is_given else None), -1
        assert one is not None
        if record.state is _S.ONGOING:
            return self._open_point(one, logs, record.partitions)
        if not record.state.is_prepared:
            return Point.COMPLETE, -1
        left = sum(record.producer_id in logs[place].open() for place in record.partitions)
        if left == len(record.partitions):
            return Point.DECIDED, -1
        return (Point.SOME_MARKED if left else Point.ALL_MARKED), -1

    def _open_point(
        self,
        one: Transaction,
        logs: dict[TopicPartition, Partition],
        added: tuple[TopicPartition, ...],
    ) -> tuple[Point | None, int]:
        if any(self._client.producer[0] not in logs[place].open() for place in added):
            return Point.ADDED, -1
        unanswered = [sent for sent in one.records if sent.acked == NEVER]
        if unanswered and self._asked is not None:
            sent = unanswered[0]
            for seen in logs[sent.place].values():
                if seen.value == sent.value:
                    return Point.APPENDED, seen.offset
            return Point.ADDED, -1
        if OFFSETS in added and one.position_acked == NEVER:
            return Point.POSITIONED, -1
        return Point.OPEN, -1


ROUNDS: Final = 6
"""Transactions with data, so that there is something to compact."""


def logs_of(state: State) -> dict[TopicPartition, Partition]:
    """What lies on a disk that no broker has started on."""
    found: dict[TopicPartition, Partition] = {}
    for place in (*DATA, OFFSETS, STATE_LOG):
        directory = f"/data/{place.topic}-{place.partition}"
        exists = state.files.exists(directory)
        found[place] = (
            read_log(state.files, directory, is_recovered=False) if exists else Partition()
        )
    return found


async def go_on(broker: Broker, kill: Kill, scenario: Scenario) -> None:
    """What the client does when the broker is back, and what must come of it."""
    host = broker.transactions.host
    one = host.transactional_id(OWNER)
    if kill.asked is not None:
        answer = await _again(broker, *kill.asked)
        _check_answer(kill, answer)
    one = host.transactional_id(OWNER)
    if one is None or one.record is None:
        return
    if one.record.state is _S.ONGOING:
        await _finish(broker, scenario, one.record.producer_id, one.record.producer_epoch)
    await asyncio.sleep(2 * AFTER_ANSWERS_S)
    assert one.record.state.is_idle, one.record
    for partition in broker.topics.disk.opened():
        assert not partition.open_transactions(), f"{partition} has transactions that hang"
        assert partition.last_stable_offset == partition.high_watermark


async def _finish(broker: Broker, scenario: Scenario, producer_id: int, epoch: int) -> None:
    """End the transaction that goes on, as it was to end."""
    match scenario.ending:
        case Ending.COMMIT | Ending.ABORT:
            request = m.EndTxnRequest(
                transactional_id=OWNER,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=scenario.ending is Ending.COMMIT,
            )
            answer = await broker.ask(request, 4 if scenario.flow == 1 else 5)
            assert answer.error_code == ErrorCode.NONE
        case Ending.TIMEOUT:
            await asyncio.sleep(OVERDUE_MS / 1_000)
        case Ending.FENCE:
            init = m.InitProducerIdRequest(transactional_id=OWNER, transaction_timeout_ms=10_000)
            answer = await _again(broker, init, 4)
            assert (answer.producer_id, answer.producer_epoch) == (producer_id, epoch + 2)


async def _again(broker: Broker, request: Any, version: int) -> Any:  # noqa: ANN401
    """Ask once more, and until nothing is on its way."""
    while True:
        answer = await broker.ask(request, version)
        if ErrorCode.CONCURRENT_TRANSACTIONS not in set(errors_in(answer)):
            return answer
        await asyncio.sleep(0.02)


def _check_answer(kill: Kill, answer: Any) -> None:  # noqa: ANN401
    """A request that is sent again is answered as if it had been the first time."""
    assert kill.asked is not None
    request, version = kill.asked
    assert set(errors_in(answer)) == {ErrorCode.NONE}, f"{kill.point}: {answer}"
    pid, epoch = kill.producer
    if isinstance(request, m.EndTxnRequest) and version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (pid, epoch + 1)
    if isinstance(request, m.ProduceRequest) and kill.point is Point.APPENDED:
        first = answer.responses[0].partition_responses[0]
        assert first.base_offset == kill.offset, f"appended twice: {answer}"


def errors_in(answer: Any) -> Iterator[int]:  # noqa: ANN401
    """The error codes of an answer, wherever they stand."""
    if hasattr(answer, "responses"):
        for topic in answer.responses:
            yield from (one.error_code for one in topic.partition_responses)
    elif hasattr(answer, "results_by_topic_v3_and_below"):
        for topic in answer.results_by_topic_v3_and_below:
            yield from (one.partition_error_code for one in topic.results_by_partition)
    elif hasattr(answer, "topics"):
        for topic in answer.topics:
            yield from (one.error_code for one in topic.partitions)
    else:
        yield answer.error_code
