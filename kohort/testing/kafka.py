"""`Kafka`: a real broker in the process of a test, with its own thread and event loop.

Its methods are plain calls. Those that wait for clients also exist as coroutines, `..._async`: if
the clients run on the test's loop, a blocking wait would stop them.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, Self, TypeVar, Unpack

from kohort.admin.groups import Member
from kohort.client.core.records import RawRecord
from kohort.groups.history.model import RebalanceRecord
from kohort.testing.inline_executor import InlineLoop
from kohort.testing.kit.broker import KitBroker
from kohort.testing.kit.faults import Fault, FaultParts, new_fault
from kohort.testing.kit.groups import MemberFilter, WantedGroup
from kohort.testing.kit.machine import HOST, DiskMachine, MemoryMachine, ReservedPort
from kohort.testing.kit.topics import Content, Produced, RecordParts, WantedRecords

T = TypeVar("T")
W = TypeVar("W", WantedRecords, WantedGroup)

TIMEOUT_S: Final = 10.0
"""Default timeout of waits."""


class Kafka:
    """One broker. The fixtures start and close it; elsewhere it is a context manager."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        directory: Path | None = None,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        """
        Args:
            settings: the broker's settings, under Kafka's names, such as {"num.partitions": 3}.
            directory: the data directory; in memory by default.
            seed: determines which writes a crash loses.
            port: 0 for any free port.
        """
        machine = MemoryMachine() if directory is None else DiskMachine(directory)
        self._port = ReservedPort(port)
        self._kit = KitBroker(settings or {}, machine, self._port.number, Random(seed))
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kohort broker of a test")
        self._thread.daemon = True

    @property
    def bootstrap_servers(self) -> str:
        """The value that clients call `bootstrap_servers` or `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Port of the broker; the same after restarts."""
        return self._port.number

    # Lifecycle.

    def open(self) -> Self:
        """Start the broker. Raises StartError, or ConfigError for an unknown setting."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            self._port.close()
            raise self._error
        return self

    def close(self) -> None:
        """Stop the broker, and raise its error, if any."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
        self._port.close()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, by default with num.partitions partitions. Raises KafkaError."""
        self._call(self._kit.topics.create(name, partitions, configs))

    def produce(self, topic: str, value: Content, **parts: Unpack[RecordParts]) -> Produced:
        """Append one record; return its partition and offset.

        Besides the value it may have a `key`, `headers`, a `partition` and a `timestamp_ms`. Text
        is encoded as UTF-8. Without a partition, the key determines it as in the Java client;
        without a key, partitions are used round robin. A missing topic is created. Faults do not
        apply.

        Raises:
            KafkaError: the broker rejected the record.
        """
        return self._call(self._kit.topics.produce(topic, value, **parts))

    def records(self, topic: str, **wanted: Unpack[WantedRecords]) -> list[RawRecord]:
        """Return all records of a topic, by partition and offset.

        Args:
            partition: return only records of this partition.
            count: wait until there are this many records, for at most `timeout` seconds (10).
            committed: omit records of open or aborted transactions.

        Raises:
            KafkaError: the topic does not exist, and no `count` was given.
            TimeoutError: there are fewer records.
        """
        if wanted.get("count") is not None:
            _check_no_loop("records_async")
        return self._call(self._kit.topics.wait_records(topic, **_in_time(wanted)))

    async def records_async(self, topic: str, **wanted: Unpack[WantedRecords]) -> list[RawRecord]:
        """Coroutine variant of `records`, for tests whose loop must keep running."""
        return await self._wait(self._kit.topics.wait_records(topic, **_in_time(wanted)))

    # Groups.

    def group(self, name: str) -> "KafkaGroup":
        return KafkaGroup(self, name)

    def why(self) -> dict[str, list[str]]:
        """Return the output of `kohort groups why` for each group."""
        return self._call(self._kit.why())

    # Faults.

    def fault(self, api: str, **parts: Unpack[FaultParts]) -> "KafkaFault":
        """Apply a fault to requests of one api, such as "Heartbeat", while the context is open.

        Args:
            api: its name in Kafka's protocol; "*" for all: with `client_id` and `drop`, this
                simulates a client whose machine has vanished.
            client_id, group, topic: only requests of this client, with this group, with this topic.
            when: called with the request, on the broker's thread; returns True for affected
                requests.
            drop: the broker never sees the requests and never answers; later requests on their
                connections wait too, as with a hanging broker.
            delay_ms: the requests arrive this much later; with other actions, the delay comes
                first.
            error: the requests are answered with this error, by name, and have no effect.
            disconnect: their connections are closed.
            observe: the requests are only counted.
            times: maximum number of affected requests; all by default.

        Raises:
            ValueError: the arguments contradict each other, or the api or the error is unknown.
            TypeError: an argument is unknown.
        """
        return KafkaFault(self, new_fault(api, parts))

    # The broker as a whole.

    def stop(self) -> None:
        """Stop the broker as SIGTERM does. Clients cannot connect until `start`."""
        self._call(self._kit.stop())

    def start(self) -> None:
        """Start the broker after `stop`, on the same port and with the stored data."""
        self._call(self._kit.start())

    def restart(self) -> None:
        self._call(self._kit.restart())

    def crash(self, *, lose_unsynced: bool = False) -> None:
        """Kill the broker as kill -9 does, and start it again.

        With `lose_unsynced`, the machine loses power: each write that was not forced to disk is
        kept, lost, or kept in part. Only for a broker in memory.
        """
        self._call(self._kit.crash(lose_unsynced=lose_unsynced))

    def fill_disk(self, *, bytes_left: int = 0) -> None:
        """Let files grow by at most `bytes_left`, until `free_disk`; only with data in memory."""
        self._do(lambda: self._kit.fill_disk(bytes_left))

    def free_disk(self) -> None:
        self._do(lambda: self._kit.fill_disk(None))

    # Internals.

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop; return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop; await its result on the test's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _do(self, function: Callable[[], T]) -> T:
        async def on_loop() -> T:
            return function()

        return self._call(on_loop())

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=InlineLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread.
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        try:
            await self._kit.start()
            self._ready.set()
            await self._ending.wait()
        finally:
            await self._kit.close()


class KafkaGroup:
    def __init__(self, kafka: Kafka, name: str) -> None:
        self._kafka = kafka
        self._group = kafka._kit.group(name)  # noqa: SLF001
        self.name = name

    def wait(self, **wanted: Unpack[WantedGroup]) -> None:
        """Wait until the group has this `state` ("Stable", "Empty", "PreparingRebalance",
        "CompletingRebalance"), this number of `members` and at most this `lag`, all at the same
        time.

        The lag is in records, over the topics that the group subscribes to or has offsets for;
        without a commit, from the first record on. Subscriptions of members that are still joining
        are unknown, so the lag is then unknown, not 0.

        Raises:
            TimeoutError: not within `timeout` seconds (10); the message gives the actual state.
        """
        _check_no_loop("wait_async")
        self._call(self._group.wait(**_in_time(wanted)))

    async def wait_async(self, **wanted: Unpack[WantedGroup]) -> None:
        """Coroutine variant of `wait`, for tests whose loop must keep running."""
        await self._kafka._wait(self._group.wait(**_in_time(wanted)))  # noqa: SLF001

    @property
    def state(self) -> str | None:
        """The group's state, as Kafka names it; None if the group does not exist."""
        return self._kafka._do(lambda: self._group.state)  # noqa: SLF001

    @property
    def members(self) -> list[Member]:
        return self._kafka._do(lambda: self._group.members)  # noqa: SLF001

    @property
    def lag(self) -> int:
        """Lag in records; see `wait`."""
        return self._kafka._do(lambda: self._group.lag)  # noqa: SLF001

    @property
    def rebalances(self) -> list[RebalanceRecord]:
        """Records of the rebalance history, oldest first; see docs/rebalance-history.md."""
        return self._call(self._group.rebalances())

    @property
    def why(self) -> list[str]:
        """Reasons of the group's last rebalances, as printed by `kohort groups why`."""
        return self._call(self._group.why())

    def expire(self, **who: Unpack[MemberFilter]) -> list[str]:
        """End the sessions of all members with this `client_id`, `member_id` and `instance_id`, as
        after the session timeout.

        Returns their ids. Raises LookupError if there are no such members, ValueError if one of
        them waits in a rebalance, because such members have no session.
        """
        return self._call(self._group.expire(**who))

    def remove(self, **who: Unpack[MemberFilter]) -> list[str]:
        """Remove the selected members, as an administrator would; see `expire`."""
        return self._call(self._group.remove(**who))

    def enforce(self) -> None:
        """Force a rebalance. Raises LookupError if the group has no members."""
        self._call(self._group.enforce())

    def hold_join(self, *, client_id: str | None = None) -> "KafkaFault":
        """Delay the JoinGroup requests of a client, or of all clients, until the context ends: a
        rebalance waits for them, as for a client that is slow to join.
        """
        fault = new_fault("JoinGroup", {"group": self.name, "client_id": client_id}, hold=True)
        return KafkaFault(self._kafka, fault)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._kafka._call(work)  # noqa: SLF001


class KafkaFault:
    """A fault, which applies while its context is open."""

    def __init__(self, kafka: Kafka, fault: Fault) -> None:
        self._kafka = kafka
        self._fault = fault

    def __enter__(self) -> Self:
        self._kafka._do(lambda: self._kafka._kit.faults.add(self._fault))  # noqa: SLF001
        return self

    def __exit__(self, *exception: object) -> None:
        self._kafka._do(lambda: self._kafka._kit.faults.remove(self._fault))  # noqa: SLF001

    @property
    def hits(self) -> int:
        """Number of requests affected or observed."""
        return self._fault.hits

    def wait(self, hits: int = 1, *, timeout: float = TIMEOUT_S) -> None:
        """Wait until the fault has affected this many requests. Raises TimeoutError."""
        _check_no_loop("wait_async")
        self._kafka._call(self._fault.wait(hits, timeout=timeout))  # noqa: SLF001

    async def wait_async(
        self,
        hits: int = 1,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - its TimeoutError describes the state.
    ) -> None:
        """Coroutine variant of `wait`, for tests whose loop must keep running."""
        await self._kafka._wait(self._fault.wait(hits, timeout=timeout))  # noqa: SLF001


def _in_time(wanted: W) -> W:
    """Add the default timeout to `wanted` if it has none."""
    return {"timeout": TIMEOUT_S, **wanted}


def _check_no_loop(instead: str) -> None:
    """Raise RuntimeError if this thread runs a loop: a blocking wait would stop clients on it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"a coroutine awaits `{instead}` instead: this call would block the loop")
