"""A broker as far as transactions reach: logs, groups, coordinator and handlers, without sockets.

It lives on a simulated disk and a virtual clock, and dies at any moment as a killed process does:
what it has begun is never ended, and what its timers still do happens to a disk that is never seen.
"""

import asyncio
import contextvars
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from kohort.broker.config import LoadedConfig, load
from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.coordinator.offsets_log import TopicOffsetsLog
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.dispatch.context import BrokerServices
from kohort.broker.dispatch.failures import error_response
from kohort.broker.handlers import load_handlers
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.broker.transactions.host import TransactionsConfig
from kohort.broker.transactions.transactions import Transactions
from kohort.protocol.codec import Codec, codec
from kohort.protocol.errors import KafkaError
from kohort.protocol.message import RESPONSES, schema_of
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.simulation.loop import SimulatedLoop
from tests.support.brokers.running_topics import NODE_ID
from tests.support.groups.coordinators import group_coordinator, report
from tests.support.groups.running_groups import Coordinators, answered
from tests.support.transactions.running_transactions import transaction_host

T = TypeVar("T")

AFTER_ANSWERS_S = 0.001
"""When a broker goes on that has answered, unless it is asked for something before."""

ROOT: Final = Path("/data")
ID_EXPIRATION_MS: Final = 90_000
TOPICS: Final = {"t": 2, "c": 1, "d": 1}
"""Partitions by topic: a plain one, a compacted one, and one that is deleted now and then."""
_SMALL: Final = {"internal.segment.bytes": "1500"}
_COMPACT: Final = _SMALL | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
}

_life: "contextvars.ContextVar[Broker | None]" = contextvars.ContextVar("life", default=None)


def settings(*, is_forced: bool) -> LoadedConfig:
    """For all lives of a disk; `is_forced` has every batch wait for an fsync."""
    return load(
        overrides=[
            f"log.dirs={ROOT}",
            "log.cleaner.backoff.ms=700",
            *(["log.flush.interval.messages=1"] if is_forced else []),
        ]
    )


class Disk:
    """What one broker leaves to the next. The metadata is durable with every change."""

    def __init__(
        self, files: SimulatedFileSystem | None = None, store: LastingMetadata | None = None
    ) -> None:
        self.files = files or SimulatedFileSystem()
        self.store = store or LastingMetadata()


class Died(Exception):  # noqa: N818 - it happens to who waits, and is no error.
    """The broker is gone before it answered."""


class Broker:
    topics: TopicManager
    groups: GroupCoordinator
    transactions: Transactions
    services: BrokerServices

    def __init__(
        self,
        disk: Disk,
        loaded: LoadedConfig,
        clock: Clock,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.disk = disk
        self.is_dead = False
        self._loaded = loaded
        self._clock = clock
        self._new_uuid = new_uuid
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = contextvars.copy_context()
        self._context.run(_life.set, self)
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Open what is on the disk; on one that is empty, make topics."""
        await self.run(self._start())

    async def _start(self) -> None:
        executor, clock = InlineExecutor(), self._clock
        purgatory = Purgatory(report=report)
        topics = self.topics = TopicManager(
            self._loaded,
            clock=clock,
            purgatory=purgatory,
            executor=executor,
            files=self.disk.files,
            store=self.disk.store,
            new_uuid=self._new_uuid,
        )
        await topics.start()
        if topics.get("t") is None:
            await _make_topics(topics)
        groups = self.groups = group_coordinator(
            purgatory, clock, log=TopicOffsetsLog(topics, topics.settings.config)
        )
        topics.changes.on_topics_deleted(groups.host.forget_topics)
        await groups.host.start()
        host = await transaction_host(
            topics,
            groups,
            purgatory,
            TransactionsConfig(
                TransactionConfig(id_expiration_ms=ID_EXPIRATION_MS), expiry_check_ms=20_000
            ),
            partition_count=1,
        )
        host.marking.after_answers = self._work_after_answers
        self.transactions = Transactions(host)
        self.services = BrokerServices(
            config=topics.settings.config,
            clock=clock,
            purgatory=purgatory,
            topics=topics,
            coordinators=lambda: Coordinators(groups, self.transactions),
            node_id=NODE_ID,
            cluster_id=topics.cluster_id,
            advertised_host="broker.example",
            advertised_port=9092,
        )
        PurgatoryShell(purgatory, clock)

    async def ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - what the handler says.
        """The answer, as a client of that version reads it. Raises Died."""
        return await self.run(self._answer(request, version))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something as part of this life. Raises Died if that ends first."""
        if self.is_dead:
            work.close()
            raise Died
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        first: list[asyncio.Future[Any]] = [task, self._died]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if self.is_dead:
            raise Died
        return task.result()

    def _work_after_answers(self, work: Callable[[], None]) -> None:
        """Later than the client hears of the answer, and before it is answered anything else."""
        asyncio.get_running_loop().call_later(
            AFTER_ANSWERS_S, lambda: None if self.is_dead else work()
        )

    async def _answer(self, request: Any, version: int) -> Any:  # noqa: ANN401
        self.transactions.host.marking.finish()
        try:
            return await answered(self.services, request, version)
        except KafkaError as error:
            # As the dispatcher does.
            api = load_handlers()[cast("int", schema_of(type(request)).key)]
            response = error_response(api.on_error, request, version, error.code, error.message)
        answers: Codec[Any] = codec(RESPONSES[api.key], version)
        return answers.decode(answers.encode(response))[0]

    def note_task(self, task: asyncio.Task[Any]) -> None:
        """A task of this life has begun."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def die(self) -> None:
        """Stop answering, now; `bury` does the rest when nothing of it is on the stack."""
        self.is_dead = True

    def bury(self) -> None:
        """End what is left of a life."""
        self.is_dead = True
        for task in list(self._tasks):
            task.cancel()
        if not self._died.done():
            self._died.set_result(None)

    async def end(self) -> None:
        """Bury it, and wait until nothing of it is left."""
        self.bury()
        while tasks := list(self._tasks):
            await asyncio.wait(tasks)


async def _make_topics(topics: TopicManager) -> None:
    for name, count in TOPICS.items():
        configs = _COMPACT if name == "c" else _SMALL
        await topics.changes.create_topic(name, partition_count=count, configs=configs)
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        await topics.changes.create_topic(name, partition_count=1, configs=_COMPACT)


def own_tasks(loop: SimulatedLoop) -> None:
    """Have the loop tell each broker which tasks are of its life."""

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        context = options.get("context")
        life = _life.get() if context is None else context.get(_life)
        if life is not None:
            life.note_task(task)
        return task

    loop.set_task_factory(make)


def new_loop(clock: Any, latency_ms: Callable[[], int]) -> SimulatedLoop:  # noqa: ANN401
    loop = SimulatedLoop(clock, latency_ms=latency_ms, listen=lambda *_: None)
    own_tasks(loop)
    return loop
