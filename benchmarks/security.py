"""What access rules and limits add to requests, and what many simultaneous logins cost others.

Processor time is the broker's. Differences of less than a microsecond want a quiet machine.
"""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any, Final, Self

from benchmarks.brokers import Contender, RunningBroker
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.hooks import KINDS, measure_added, requests
from benchmarks.in_process import run_apart
from benchmarks.processes import stand_for_other_machines
from benchmarks.secured import (
    add_listeners,
    ask,
    connect,
    receive,
)
from kohort.client.net import sasl
from kohort.client.net.sasl import Scram
from kohort.protocol.messages.membership import HeartbeatRequest
from kohort.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from kohort.protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kohort.protocol.scram import salted_password
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import framed, request_body, response_in

TITLE: Final = "Access rules, limits and logins"

_ROUNDS: Final = 300
_LOGINS: Final = 1_000
_WAVES: Final = 5
"""Times that so many come, each time after the others have left."""
_PAUSE_S: Final = 0.0005
"""Between two heartbeats of who waits beside the crowd."""
_SCRAM: Final = "SCRAM-SHA-256"
_USER, _PASSWORD = "alice", "a secret"
_SALT: Final = b"0123456789abcdef"
_ITERATIONS: Final = 4_096
_LIMITS: Final = {"rules": (0.6, 1.0, 1.0, 3.0, None), "limits": (None, None, 2.5, 2.5, None)}
"""By what is set, for each of the requests of `hooks`."""


def measure(bench: Bench) -> Iterable[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for part in bench.wanted(_PARTS, _PARTS.__getitem__):
            yield from part(bench)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# What rules and limits add to a request.


def _costs(bench: Bench) -> Iterable[Row]:
    rounds = int(bench.scaled(_ROUNDS, 2))
    runs = iter(range(bench.runs))
    figures = bench.measure_ours(
        lambda: run_apart(
            partial(measure_added, rounds=rounds), bench.directory / f"security-costs-{next(runs)}"
        )
    )
    for name in requests():
        yield Row(f"{name}: CPU", "us", figures[name])
    for kind in KINDS:
        for name, limit in zip(requests(), _LIMITS[kind], strict=True):
            text = f"{name}, with {kind} more than without: CPU"
            yield Row(text, "us", figures[f"{kind} {name}"], limit=limit)
            yield Row(f"{text}, fastest rounds", "us", figures[f"{kind} {name} least"])


# Logins.


def _many_logins(bench: Bench) -> Iterable[Row]:
    logins = int(bench.scaled(_LOGINS, 3))
    figures = bench.alternate(lambda contender: _logins(bench, contender, logins))
    yield Row(f"{logins:,} SCRAM logins at once, all in", "ms", figures["in"], limit=2_000)
    yield Row("a heartbeat meanwhile, p99", "ms", figures["meanwhile"])
    yield Row("a heartbeat before, p99", "ms", figures["before"])
    text = "a heartbeat to a broker without logins meanwhile, p99"
    yield Row(text, "ms", figures["elsewhere"])


@contextmanager
def _running(
    bench: Bench, contender: Contender, protocols: Iterable[str]
) -> Iterator[tuple[RunningBroker, dict[str, int], Authority]]:
    directory = bench.directory / f"security-{contender.name}-{time.monotonic_ns()}"
    authority = Authority(directory / "certificates")
    server = contender.server(directory)
    ports = {one: free_port() for one in protocols}
    add_listeners(server, ports, authority.issue("broker", "IP:127.0.0.1"))
    with RunningBroker(server) as broker:
        broker.wait_serving()
        yield broker, {"PLAINTEXT": broker.port, **ports}, authority


def _logins(bench: Bench, contender: Contender, count: int) -> Measured:
    protocol = "SASL_PLAINTEXT"
    progress(f"  {contender.name}: {count} logins")
    # What the crowd costs others through the machine that they share, and not through the broker.
    place = bench.directory / f"idle-{time.monotonic_ns()}"
    idle = bench.contenders[0].server(place, {"kohort.metrics.port": "0"})
    with (
        _running(bench, contender, [protocol]) as (broker, ports, _),
        RunningBroker(idle) as other,
    ):
        other.wait_serving()
        _add_user(broker.port)
        with _Crowd(ports[protocol], count) as crowd:
            with _Heartbeats(broker.port) as before:
                time.sleep(bench.scaled(2.0, 0.05))
            with _Heartbeats(other.port) as elsewhere, _Heartbeats(broker.port) as meanwhile:
                took_s = [crowd.come() for _ in range(int(bench.scaled(_WAVES, 1)))]
    figures = {"before": before, "meanwhile": meanwhile, "elsewhere": elsewhere}
    return {"in": max(took_s) * 1e3} | {name: one.p99_ms() for name, one in figures.items()}


def _add_user(port: int) -> None:
    salted = salted_password("sha256", _PASSWORD.encode(), _SALT, _ITERATIONS)
    upsertion = ScramCredentialUpsertion(
        name=_USER, mechanism=1, iterations=_ITERATIONS, salt=_SALT, salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    with closing(connect(port)) as client:
        ask(client, framed(request_body(request, 0)), memoryview(bytearray(1 << 16)))


class _Apart:
    """Clients in a process of their own, which says when it is ready and goes on until it is told
    to stop.
    """

    def __init__(self, work: Callable[..., None], *args: int) -> None:
        """`work` is called with `args` and its end of the pipe."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(*args, theirs))

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("stop")
        self._hear_last()
        self._process.join()

    def _hear_last(self) -> None:
        """Receive what the process has to say at the end: nothing."""


class _Crowd(_Apart):
    """Clients that log in together, of a process that leaves the processor to the others."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(_come, port, count)

    def come(self) -> float:
        """Log all in, and return how many seconds that took."""
        self._pipe.send("come")
        took_s: float = self._pipe.recv()
        return took_s


def _come(port: int, count: int, pipe: "Connection[Any, Any]") -> None:
    stand_for_other_machines()
    # What each client would compute for itself; here one would wait for another's.
    sasl.scram.salted_password = cache(salted_password)  # type: ignore[attr-defined]
    _all_in(port, 10)
    pipe.send("ready")
    while pipe.recv() == "come":
        pipe.send(_all_in(port, count))


def _all_in(port: int, count: int) -> float:
    """Seconds until so many clients, who come together, are in."""
    place = memoryview(bytearray(1 << 16))
    handshake = framed(request_body(SaslHandshakeRequest(mechanism=_SCRAM), 1))
    with ExitStack() as stack:
        crowd = [stack.enter_context(closing(connect(port))) for _ in range(count)]
        rules = [Scram("sha256", _USER, _PASSWORD, f"n{number}") for number in range(count)]
        began_s = time.perf_counter()
        for client in crowd:
            client.sendall(handshake)
        for client, one in zip(crowd, rules, strict=True):
            receive(client, place)
            client.sendall(_token(one.first()))
        for client, one in zip(crowd, rules, strict=True):
            client.sendall(_token(_told(one, place[4 : receive(client, place)]) or b""))
        for client, one in zip(crowd, rules, strict=True):
            _told(one, place[4 : receive(client, place)])
        return time.perf_counter() - began_s


def _token(token: bytes) -> bytes:
    return framed(request_body(SaslAuthenticateRequest(auth_bytes=token), 2))


def _told(rules: Scram, data: memoryview) -> bytes | None:
    answer = response_in(bytes(data), SaslAuthenticateResponse, 2)
    if answer.error_code:
        raise RuntimeError(f"not let in: {answer.error_message}")
    return rules.answer(answer.auth_bytes)


class _Heartbeats(_Apart):
    """Somebody else, who asks again and again: in a process of its own, or it would wait for the
    crowd's hold on the interpreter.
    """

    def __init__(self, port: int) -> None:
        super().__init__(_beat, port)
        self._waits_s: list[float] = []

    def _hear_last(self) -> None:
        self._waits_s = self._pipe.recv()

    def p99_ms(self) -> float:
        if len(self._waits_s) < 2:
            return 0.0
        return statistics.quantiles(self._waits_s, n=100)[98] * 1e3


def _beat(port: int, pipe: "Connection[Any, Any]") -> None:
    """Ask until told to stop, and tell the seconds that each answer took."""
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame, place = framed(request_body(heartbeat, 4)), memoryview(bytearray(1 << 16))
    waits_s: list[float] = []
    with closing(connect(port)) as client:
        ask(client, frame, place)
        pipe.send("ready")
        while not pipe.poll(_PAUSE_S):
            began_s = time.perf_counter()
            ask(client, frame, place)
            waits_s.append(time.perf_counter() - began_s)
    pipe.send(waits_s)


_PARTS: Final = {_costs: "costs", _many_logins: "logins"}
