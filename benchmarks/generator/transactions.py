"""Transactions over sockets, of any number of producers.

Each producer has a connection of its own and one request on its way, as a client that commits
before it goes on.
"""

import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.generator.frames import RECEIVE_BYTES, ask, connect, receive_rest
from benchmarks.generator.topics import committed_end, create_topics
from benchmarks.generator.transaction_requests import FLOWS, PRODUCER, Work, make_step
from benchmarks.harness import Measured
from benchmarks.processes import cpu_s
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PARTITIONS_MAX: Final = 10
RETRY_S: Final = 0.02
"""How long Kafka's own producers wait after CONCURRENT_TRANSACTIONS."""
WARM_TRANSACTIONS: Final = 20
_TIMEOUT_S: Final = 60.0
_TIMEOUT_MS: Final = 60_000
_FIND, _INIT = 4, 5
_GROUP, _TRANSACTIONAL_ID = 0, 1
"""Types of keys for FindCoordinator."""

_AGAIN: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    # Of partitions that a Kafka has not taken up yet.
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

_END_PRODUCER_AT: Final = 15
"""In the answer to EndTxn v5."""


class Producer:
    """One producer with its transactional id, if it has one."""

    def __init__(self, port: int, work: Work, number: int, transactional_id: str | None) -> None:
        self.connection = connect(port)
        self.number = number
        self.at = 0
        """Which of the steps is next, or on its way."""
        self.asked_s = 0.0
        """When the present step was asked for first."""
        if "commit offsets" in FLOWS[work.flow]:
            _find(self.connection, work.group_id, _GROUP)
        self._id, self._epoch = _producer(self.connection, transactional_id)
        self._sequence = 0
        self._work = work
        self._begun = 0
        partition = number % PARTITIONS_MAX
        self.steps = [
            make_step(name, work, transactional_id, partition) for name in FLOWS[work.flow]
        ]
        self._gives_epoch = self.steps[-1].name == "end" and work.flow.startswith("TV2")
        self._commits_at = len(self.steps[-1].frame) - 2  # Before the tags.

    def begin(self) -> None:
        """Prepare the next transaction."""
        self.at = 0
        self._begun += 1
        if self._work.abort_every:
            is_abort = self._begun % self._work.abort_every == 0
            self.steps[-1].frame[self._commits_at] = not is_abort
        for step in self.steps:
            step.prepare(self._id, self._epoch, self._sequence)
        self._sequence += self._work.records

    def take_end(self, answer: bytes) -> None:
        """The last step was answered, without an error."""
        if self._gives_epoch:
            self._id, self._epoch = PRODUCER.unpack_from(answer, _END_PRODUCER_AT)
            self._sequence = 0


def _producer(connection: socket.socket, transactional_id: str | None) -> tuple[int, int]:
    """The id and the epoch of a producer; a Kafka makes its log of transactions first."""
    if transactional_id is not None:
        request = FindCoordinatorRequest(
            key_type=_TRANSACTIONAL_ID, coordinator_keys=[transactional_id]
        )
        _patiently(lambda: ask(connection, request, FindCoordinatorResponse, _FIND).coordinators[0])
    init = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    made = _patiently(lambda: ask(connection, init, InitProducerIdResponse, _INIT))
    return made.producer_id, made.producer_epoch


def _find(connection: socket.socket, key: str, key_type: int) -> None:
    """Wait for a coordinator; a Kafka makes its topic when it is first asked for one."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    _patiently(lambda: ask(connection, request, FindCoordinatorResponse, _FIND).coordinators[0])


def _patiently(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the answer.
    late_s = time.perf_counter() + _TIMEOUT_S
    while (answer := call()).error_code:
        if answer.error_code not in _AGAIN or time.perf_counter() > late_s:
            raise RuntimeError(f"no producer: {answer!r}")
        time.sleep(0.1)
    return answer


class Producers:
    """Some producers that work at the same time."""

    def __init__(self, producers: Sequence[Producer]) -> None:
        self.ended = 0
        """Transactions, or batches where there are none, since the start."""
        self.refused = 0
        """Answers that asked to try again."""
        self.end_s: list[float] = []
        """How long each EndTxn took."""
        self._producers = producers
        self._by_descriptor = {one.connection.fileno(): one for one in producers}
        self._poll = select.epoll()
        for one in producers:
            self._poll.register(one.connection, select.EPOLLIN)
        self._due: list[tuple[float, int, Producer]] = []
        """When a producer goes on that has nothing on its way."""
        self._running = 0
        self._again: Callable[[Producer], bool] = lambda _: False

    def repeat(self, *, count: int = 0, seconds: float = 0.0) -> None:
        """Each as fast as it goes: so many transactions of all together, or for so long."""
        ended_max = self.ended + count if count else 1 << 60
        until_s = time.perf_counter() + seconds if seconds else float("inf")
        self._again = lambda _: (
            self.ended + self._running < ended_max and (time.perf_counter() < until_s)
        )
        for one in self._producers[: count or None]:
            self._begin(one)
        self._run()

    def keep_pace(self, rate: float, seconds: float) -> None:
        """`rate` transactions a second by all together, each when it is due."""
        began_s = time.perf_counter()
        producers = itertools.cycle(self._producers)
        self._again = lambda _: False
        for number in range(int(rate * seconds)):
            self._run_until(began_s + number / rate)
            one = next(producers)
            while any(one is busy for _, _, busy in self._due) or one.asked_s:
                self._turn(0.1)  # It is late with the one before.
            self._begin(one)
        self._run()

    def close(self) -> None:
        """Leave the broker."""
        for one in self._producers:
            one.connection.close()

    def _begin(self, one: Producer) -> None:
        one.begin()
        self._running += 1
        self._ask(one)

    def _ask(self, one: Producer) -> None:
        one.asked_s = time.perf_counter()
        one.connection.sendall(one.steps[one.at].frame)

    def _run(self) -> None:
        late_s = time.perf_counter() + _TIMEOUT_S
        while self._running:
            self._turn(1.0)
            if time.perf_counter() > late_s + 60:
                raise RuntimeError("transactions that do not end")

    def _run_until(self, due_s: float) -> None:
        while (wait_s := due_s - time.perf_counter()) > 0:
            self._turn(wait_s)

    def _turn(self, wait_s: float) -> None:
        if self._due:
            wait_s = min(wait_s, max(0.0, self._due[0][0] - time.perf_counter()))
        for descriptor, _ in self._poll.poll(wait_s):
            one = self._by_descriptor[descriptor]
            answer = one.connection.recv(RECEIVE_BYTES)
            if len(answer) < 4 or len(answer) != int.from_bytes(answer[:4], "big") + 4:
                answer = receive_rest(one.connection, answer)
            self._take(one, answer)
        while self._due and self._due[0][0] <= time.perf_counter():
            one = heapq.heappop(self._due)[2]
            one.connection.sendall(one.steps[one.at].frame)

    def _take(self, one: Producer, answer: bytes) -> None:
        step = one.steps[one.at]
        error = step.error(answer)
        if error:
            if error not in _AGAIN:
                raise RuntimeError(f"{step.name} was answered {ErrorCode(error)!r}")
            self.refused += 1
            heapq.heappush(self._due, (time.perf_counter() + RETRY_S, one.number, one))
            return
        one.at += 1
        if one.at < len(one.steps):
            self._ask(one)
            return
        self.end_s.append(time.perf_counter() - one.asked_s)
        one.asked_s = 0.0
        one.take_end(answer)
        self._running -= 1
        self.ended += 1
        if self._again(one):
            self._begin(one)


def run(
    port: int,
    pid: int,
    flow: str,
    name: str,
    producers: int,
    seconds: float,
    *,
    rate: float = 0.0,
    records: int = 1,
    record_bytes: int = 100,
) -> Measured:
    """Transactions per second, or at `rate` each second; `name` is of a topic and a group to be."""
    work = Work(flow, name, name, records, record_bytes)
    all_of_them = _start(port, work, producers)
    all_of_them.repeat(count=WARM_TRANSACTIONS * producers)
    ended, refused = all_of_them.ended, all_of_them.refused
    all_of_them.end_s.clear()
    server_s, own_s, began_s = cpu_s(pid), time.process_time(), time.perf_counter()
    if rate:
        all_of_them.keep_pace(rate, seconds)
    else:
        all_of_them.repeat(seconds=seconds)
    took_s = time.perf_counter() - began_s
    own_s, server_s = time.process_time() - own_s, cpu_s(pid) - server_s
    count, refused = all_of_them.ended - ended, all_of_them.refused - refused
    _check_all_there(port, work, all_of_them.ended)
    all_of_them.close()
    end_s = sorted(all_of_them.end_s)
    return {
        "rate": count / took_s,
        "megabytes": count * records * record_bytes / 1e6 / took_s,
        "cpu": server_s / count * 1e6,
        "generator": own_s / took_s * 100,
        "refused": refused / count,
        "p50": end_s[len(end_s) // 2] * 1e3,
        "p99": end_s[len(end_s) * 99 // 100] * 1e3,
    }


def fill(
    port: int,
    pid: int,
    topic: str,
    transactions: int,
    *,
    records: int,
    record_bytes: int,
    abort_every: int,
) -> Measured:
    """A topic with transactions of one producer, to be read."""
    del pid
    work = Work("TV2", topic, "", records, record_bytes, abort_every)
    one = _start(port, work, 1)
    one.repeat(count=transactions)
    _check_all_there(port, work, one.ended)
    one.close()
    return {}


def _start(port: int, work: Work, producers: int) -> Producers:
    create_topics(port, [work.topic], min(producers, PARTITIONS_MAX))
    is_plain = work.flow == "idempotent"
    return Producers(
        [
            Producer(port, work, number, None if is_plain else f"{work.topic}-{number}")
            for number in range(producers)
        ]
    )


def _check_all_there(port: int, work: Work, ended: int) -> None:
    """Consumers of committed records see every batch, with its marker; Kafka's come later."""
    expected = ended * (work.records + (work.flow != "idempotent"))
    late_s = time.perf_counter() + _TIMEOUT_S
    while (found := committed_end(port, work.topic)) != expected:
        if found > expected or time.perf_counter() > late_s:
            raise RuntimeError(f"{found} records and markers are there, not {expected}")
        time.sleep(0.05)
