"""One script of life, lived by real clients under some setting, beside a broker that records it.

What happens is the same each time, and far enough apart to have an end before something else
happens: so the count of rebalances follows from the setting, and not from chance.
"""

import gzip
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.interop.lives.member import Seat
from tests.support.processes import java_env

Record: TypeAlias = dict[str, Any]

HEARTBEAT_MS: Final = 500
SLOW_S: Final = 2.5
"""What the slow member takes to give its partitions up."""
READY_S: Final = {"librdkafka": 10.0, "aiokafka": 10.0, "java": 40.0}
"""What the first processes are given to be there, while those of other lives start as well."""
AWAY_S: Final = 4.5
"""How long a process is away that is started again."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a life is lived under."""

    static: bool
    cooperative: bool
    session_timeout_ms: int = 10_000

    def __str__(self) -> str:
        named = "static" if self.static else "dynamic"
        mode = "cooperative" if self.cooperative else "eager"
        return f"{named} {mode} {self.session_timeout_ms // 1000} s"


WAYS: Final = (
    Way(static=False, cooperative=False),
    Way(static=True, cooperative=False),
    Way(static=False, cooperative=True),
    Way(static=True, cooperative=True),
    Way(static=True, cooperative=True, session_timeout_ms=20_000),
)

EAGER_WAYS: Final = (
    Way(static=False, cooperative=False),
    Way(static=True, cooperative=False),
    Way(static=False, cooperative=False, session_timeout_ms=20_000),
    Way(static=True, cooperative=False, session_timeout_ms=20_000),
    Way(static=True, cooperative=False, session_timeout_ms=30_000),
)


class Process:
    """A member of the group, and those that are started in its stead.

    The next one is there already and waits for a line: what an interpreter or a JVM takes to start
    on a busy machine is no part of the life.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._spare = self._prepare()

    def _prepare(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE)

    def start(self) -> None:
        process, self._spare = self._spare, self._prepare()
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
        _end(self._spare)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


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

    def run(self) -> None:
        """Keeps what goes wrong in `failure`, as lives are lived in threads."""
        processes = [self._process(number) for number in range(4)]
        time.sleep(READY_S[self.library])
        try:
            for wait_s, act in script(processes, self.way.session_timeout_ms / 1000):
                act()
                time.sleep(wait_s)
            self.records = self._recorded()
        except BaseException as failure:  # noqa: BLE001 - raised by the test.
            self.failure = failure
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
            heartbeat_interval_ms=HEARTBEAT_MS,
            cooperative=self.way.cooperative,
            revoke_s=SLOW_S if number == 1 else 0.0,
        )
        command = _java(seat) if self.library == "java" else python_command(self.library, seat)
        return Process(command)

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
        "bootstrap.servers": seat.bootstrap,
        "group.id": seat.group,
        "client.id": seat.client_id,
        "session.timeout.ms": seat.session_timeout_ms,
        "heartbeat.interval.ms": seat.heartbeat_interval_ms,
        "enable.auto.commit": "false",
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}Assignor",
    }
    if seat.instance_id is not None:
        told["group.instance.id"] = seat.instance_id
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
    yield 8.0, _nothing
    yield from _roll(first)
    yield 14.0, first[2].kill
    yield 7.0, first[2].start
    yield 8.0, more.start
    yield from _roll(first)
    yield session_s + 6.0, more.stop


def _roll(processes: list[Process]) -> Iterator[tuple[float, Callable[[], None]]]:
    for process in processes:
        yield AWAY_S, process.stop
        yield 7.0, process.start


def _nothing() -> None:
    pass


def live(lives: list[Life], stagger_s: float = 1.0) -> None:
    """All at a time, since they sleep most of the time. Raises what one of them has met."""
    threads = [threading.Thread(target=life.run) for life in lives]
    for thread in threads:
        thread.start()
        time.sleep(stagger_s)
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
            "records": one.records,
        }
        for one in lives
    ]
    path.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), mtime=0))


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
