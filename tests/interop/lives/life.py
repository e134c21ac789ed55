"""One script of life, lived by real clients under some setting, beside a broker that records it.

What happens is the same each time, and far enough apart to have an end before something else
happens: so the count of rebalances follows from the setting, and not from chance.
"""

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.lives.member import Seat
from tests.support.clients.confluent_client import admin_client
from tests.support.processes import java_env

Record: TypeAlias = dict[str, Any]

SLOW_S: Final = 3.0
"""What the slow member takes to give its partitions up."""
QUICK_S: Final = 0.02
READY_MAX_S: Final = 600.0
AWAY_S: Final = 4.5
"""How long a process is away that is started again."""
CALM_S: Final = 13.0
"""Until the group is stable again: both rebalances of a cooperative group, of which each waits for
a heartbeat and for the slow member."""
MIXED: Final = ("librdkafka", "aiokafka", "java", "librdkafka", "aiokafka")
"""The library of each member of a group that has several."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a life is lived under."""

    static: bool
    cooperative: bool
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 500
    slow_s: float = 2.5
    """What the second member takes to give its partitions up."""
    consumer: bool = False
    """Whether the members use the consumer protocol (KIP-848)."""

    def __str__(self) -> str:
        named = "static" if self.static else "dynamic"
        mode = "consumer" if self.consumer else "cooperative" if self.cooperative else "eager"
        speed = "slow" if self.slow_s > 1 else "quick"
        return f"{speed} {named} {mode} {self.session_timeout_ms // 1000} s"


def ways_of(library: str, slow_s: float) -> list[Way]:
    """Aiokafka has no cooperative assignor."""
    ways = [
        Way(static=False, cooperative=False, heartbeat_interval_ms=3_000, slow_s=slow_s),
        Way(static=True, cooperative=False, heartbeat_interval_ms=3_000, slow_s=slow_s),
    ]
    ways.append(replace(ways[1], session_timeout_ms=30_000))
    if library in {"librdkafka", "java"}:
        ways += [replace(way, cooperative=True) for way in ways]
    return ways


def consumer_ways_of(slow_s: float) -> list[Way]:
    """Dynamic and static members with eager assignors, and with the consumer protocol, there also
    with long sessions.
    """
    dynamic, static, long = ways_of("librdkafka", slow_s)[:3]
    return [dynamic, static, *(replace(way, consumer=True) for way in (dynamic, static, long))]


STARTS: Final = (3, 3, 3, 2, 1)
"""How often `script` starts each process."""


class Process:
    """A member of the group, and those that are started in its stead.

    All of them are there already, and wait for a line: what an interpreter or a JVM takes to start
    on a busy machine is no part of the life.
    """

    def __init__(self, command: list[str], starts: int) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._spares = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(starts)
        ]

    def wait_until_ready(self) -> None:
        for process in self._spares:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"

    def start(self) -> None:
        process = self._spares.pop()
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        self._process = process

    def stop(self) -> None:
        """In good order."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Without a word. May follow `stop`."""
        if self._process is not None:
            _end(self._process)

    def close(self) -> None:
        """No more are started."""
        self.kill()
        for process in self._spares:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


@dataclass
class Life:
    """A life of one group; `run` lives it."""

    library: str
    way: Way
    bootstrap: str
    topic: str
    http: str
    group: str
    records: list[Record] = field(default_factory=list)
    """What the broker has recorded of it."""
    failure: BaseException | None = None

    def run(self, ready: threading.Barrier) -> None:
        """Keeps what goes wrong in `failure`, as lives are lived in threads.

        It begins when the processes of all lives are there.
        """
        processes = [self._process(number) for number in range(len(STARTS))]
        try:
            if self.way.consumer:
                self._set_group_configs()
            for process in processes:
                process.wait_until_ready()
            ready.wait(READY_MAX_S)
            for wait_s, act in script(processes, self.way.session_timeout_ms / 1000):
                act()
                time.sleep(wait_s)
            self.records = self._recorded()
        except BaseException as failure:  # noqa: BLE001 - raised by the test.
            self.failure = failure
            ready.abort()
        finally:
            for process in processes:
                process.close()

    def _process(self, number: int) -> Process:
        name = f"worker-{number}"
        seat = Seat(
            bootstrap=self.bootstrap,
            group=self.group,
            topic=self.topic,
            client_id=name,
            instance_id=name if self.way.static else None,
            session_timeout_ms=self.way.session_timeout_ms,
            heartbeat_interval_ms=self.way.heartbeat_interval_ms,
            cooperative=self.way.cooperative,
            consumer=self.way.consumer,
            revoke_s=self.way.slow_s if number == 1 else 0.0,
        )
        library = MIXED[number] if self.library == "mixed" else self.library
        command = _java(seat) if library == "java" else python_command(library, seat)
        return Process(command, STARTS[number])

    def _set_group_configs(self) -> None:
        """The timeouts of a consumer group are the broker's."""
        timeouts = {
            "consumer.session.timeout.ms": self.way.session_timeout_ms,
            "consumer.heartbeat.interval.ms": self.way.heartbeat_interval_ms,
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in timeouts.items()
        ]
        resource = ConfigResource(
            ConfigResource.Type.GROUP, self.group, incremental_configs=entries
        )
        admin = admin_client(self.bootstrap)
        for result in admin.incremental_alter_configs([resource]).values():
            result.result(60)

    def _recorded(self) -> list[Record]:
        url = f"{self.http}/groups/{self.group}/rebalances?last=1000"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[Record] = json.load(answer)["rebalances"]
        return [record for record in found if record.get("outcome") != "running"]


def python_command(library: str, seat: Seat) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.interop.lives.member",
        library,
        json.dumps(asdict(seat)),
    ]


def _java(seat: Seat) -> list[str]:
    assignor = "CooperativeSticky" if seat.cooperative else "Range"
    told = {
        "topic": seat.topic,
        "revoke_ms": round(seat.revoke_s * 1000),
        **seat.configs(f"org.apache.kafka.clients.consumer.{assignor}Assignor"),
    }
    return [
        # The shortest start counts, as the session waits for it.
        *java_env.quick_jvm("broker", "-Xmx64M"),
        "LifeMember",
        *(f"{name}={value}" for name, value in told.items()),
    ]


def script(
    processes: list[Process], session_s: float
) -> Iterator[tuple[float, Callable[[], None]]]:
    """What is done, and how long to wait after it; at the end, until the last one is missed."""
    *first, more = processes
    for process in first:
        yield 0.2, process.start
    yield CALM_S, _nothing
    for process in first:
        yield AWAY_S, process.stop
        yield CALM_S, process.start
    # A crash that is noticed, except with long sessions, and one that is over sooner.
    yield CALM_S + 9.0, first[2].kill
    yield CALM_S, first[2].start
    yield CALM_S, more.start
    yield CALM_S + 5.0, lambda: first[3].signal(signal.SIGSTOP)
    yield CALM_S, lambda: first[3].signal(signal.SIGCONT)
    yield 3.0, first[0].kill
    yield CALM_S + 9.0, first[0].start
    # A restart that takes longer than a short session.
    yield CALM_S + 7.0, first[1].stop
    yield CALM_S, first[1].start
    yield session_s + 6.0, more.stop


def _nothing() -> None:
    pass


def live(lives: list[Life]) -> None:
    """All at a time, since they sleep most of the time. Raises what one of them has met."""
    ready = threading.Barrier(len(lives))
    threads = [threading.Thread(target=life.run, args=(ready,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for life in lives:
        if life.failure is not None:
            raise life.failure


def save(lives: list[Life], path: Path) -> None:
    """What was recorded of them, for `load`."""
    kept = [
        {
            "library": one.library,
            "way": asdict(one.way),
            "group": one.group,
            "records": [_without_names(record) for record in one.records],
        }
        for one in lives
    ]
    path.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


def _without_names(record: Record) -> Record:
    """A record without what the advisor does not read: sentences, names of partitions, nulls."""
    dropped = {"sentence", "gained", "given_up"}
    return {
        name: _without_names(value)
        if isinstance(value, dict)
        else [_without_names(one) if isinstance(one, dict) else one for one in value]
        if isinstance(value, list)
        else value
        for name, value in record.items()
        if value is not None and not (name in dropped and not isinstance(value, int))
    }


def load(path: Path) -> list[Life]:
    """Lives that were lived before."""
    return [
        Life(
            library=one["library"],
            way=Way(**one["way"]),
            bootstrap="",
            topic="",
            http="",
            group=one["group"],
            records=one["records"],
        )
        for one in json.loads(gzip.decompress(path.read_bytes()))
    ]


def seen(records: list[Record]) -> tuple[int, int]:
    """Rebalances, and stopped time in ms."""
    rebalances = [record for record in records if record["kind"] == "rebalance"]
    return len(rebalances), sum(record["stopped"]["total_ms"] for record in rebalances)
