"""Groups of real consumers, to which by chance all happens that happens to consumers."""

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.watched.member import Seat, command
from tests.support.clients.confluent_client import QUIET, admin_client, create_topics

PARTITIONS: Final = 4
PARTITIONS_MAX: Final = 12
CLOSED_S: Final = 30.0
LONG_WORK_MS: Final = 60_000
"""With a longer max.poll.interval.ms, no member exceeds it: a life is too short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The settings of a group, and how often something happens to it."""

    libraries: tuple[str, ...]
    size: int
    """The largest number of members."""
    session_ms: int
    poll_ms: int
    commit_ms: int
    cooperative: bool = False
    protocol: str = "classic"
    static_share: float = 0.0
    records_s: float = 0.4
    """Between two records of a partition."""
    pause_s: float = 5.0
    """Between two acts, on average."""

    def __str__(self) -> str:
        seconds = f"S {self.session_ms // 1000} P {self.poll_ms // 1000} C {self.commit_ms / 1000}"
        more = " cooperative" if self.cooperative else ""
        return f"{'+'.join(self.libraries)} {self.protocol}{more} {self.size} {seconds}"


def ways_of(chance: random.Random, libraries: tuple[str, ...], size: int, **fixed: object) -> Ways:
    """Return a group of chance."""
    session_ms = chance.choice([6_000, 6_000, 10_000, 15_000, 30_000, 45_000])
    # A poll timeout that equals the session timeout cannot be told from its end.
    polls = [ms for ms in (8_000, 15_000, 30_000, 60_000, 300_000) if ms > session_ms]
    values: dict[str, object] = {
        "session_ms": session_ms,
        "poll_ms": chance.choice(polls),
        "commit_ms": chance.choice([1_000, 2_000, 5_000]),
        "static_share": chance.choice([0.0, 0.0, 0.5, 1.0]),
        "records_s": 0.4,
        # Most of what happens meets a group that is at rest, as in life.
        "pause_s": chance.choice([0.5, 1.0, 1.5]) * session_ms / 1000,
        "cooperative": "aiokafka" not in libraries and chance.random() < 0.4,
    }
    return Ways(libraries=libraries, size=size, **(values | fixed))  # type: ignore[arg-type]


@dataclass(eq=False)
class Member:
    """A process."""

    library: str
    seat: Seat
    process: subprocess.Popen[bytes]
    topics: tuple[str, ...]

    def order(self, line: str) -> None:
        assert self.process.stdin is not None
        # The process has exited, as a replaced static member does, or was killed.
        with suppress(OSError, ValueError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()


class GroupLife:
    """One group, in a thread of its own."""

    def __init__(self, name: str, ways: Ways, seed: str, bootstrap: str, log: Path) -> None:
        self.name, self.ways = name, ways
        self.topics = (f"{name}-a", f"{name}-b")
        self._chance = random.Random(f"{seed}.{name}")
        self._bootstrap = bootstrap
        self._admin: AdminClient = admin_client(bootstrap)
        self._log = log.open("ab")
        self.members: list[Member] = []
        self._all: list[Member] = []
        self._names = 0
        self._partitions = dict.fromkeys(self.topics, PARTITIONS)
        self._returns: list[tuple[float, Callable[[], None]]] = []
        """What happens later: who comes back, and who goes on after a pause."""
        self.acts: list[tuple[float, str]] = []
        """What has happened, for those who want to know why."""
        self.failure: BaseException | None = None

    def create(self) -> None:
        """Create its topics."""
        create_topics(self._admin, *(NewTopic(topic, PARTITIONS, 1) for topic in self.topics))

    @property
    def partitions(self) -> dict[str, int]:
        return dict(self._partitions)

    def run(self, until_s: float) -> None:
        """Live; keeps what goes wrong in `failure`."""
        try:
            while time.monotonic() < until_s:
                self._happen()
                self._pause(min(self._chance.expovariate(1 / self.ways.pause_s), 60), until_s)
        except BaseException as failure:  # noqa: BLE001 - raised by the test.
            self.failure = failure

    def end(self) -> None:
        for member in self._all:
            member.kill()
        self._log.close()

    def _pause(self, seconds: float, until_s: float) -> None:
        end_s = min(time.monotonic() + seconds, until_s)
        while True:
            now_s = time.monotonic()
            due = [act for at_s, act in self._returns if at_s <= now_s]
            self._returns = [later for later in self._returns if later[0] > now_s]
            for act in due:
                act()
            if now_s >= end_s:
                return
            next_s = min([end_s, *(at_s for at_s, _ in self._returns)])
            time.sleep(max(next_s - now_s, 0.01))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._returns.append((time.monotonic() + seconds, act))

    def _note(self, member: Member | None, act: str) -> None:
        who = self.name if member is None else f"{member.seat.client_id} ({member.library})"
        self.acts.append((time.time(), f"{who} {act}"))

    # What happens.

    def _happen(self) -> None:
        chance = self._chance
        self.members = [member for member in self.members if member.process.poll() is None]
        if len(self.members) < 2 or (len(self.members) < self.ways.size and chance.random() < 0.3):
            self._start(self._seat())
            return
        acts: list[tuple[int, Callable[[Member], None]]] = [
            (14, self._close),
            (12, self._kill),
            (12, self._stop),
            (12, self._restart),
            (12, self._work_long),
            (7, self._subscribe),
            (3, self._grow),
            (4, self._rejoin),
            (10, self._join_and_kill),
            (4, self._close_and_join),
        ]
        ((_, act),) = chance.choices(acts, [weight for weight, _ in acts])
        act(chance.choice(self.members))

    def _seat(self) -> Seat:
        self._names += 1
        ways = self.ways
        name = f"{self.name}-{self._names}"
        both = self._chance.random() < 0.7
        return Seat(
            bootstrap=self._bootstrap,
            group=self.name,
            topics=self.topics if both else self.topics[:1],
            client_id=name,
            instance_id=name if self._chance.random() < ways.static_share else None,
            session_ms=ways.session_ms,
            poll_ms=ways.poll_ms,
            commit_ms=ways.commit_ms,
            cooperative=ways.cooperative,
            protocol=ways.protocol,
        )

    def _start(self, seat: Seat, library: str | None = None) -> None:
        library = library or self._chance.choice(self.ways.libraries)
        process = subprocess.Popen(
            command(library, seat), stdin=subprocess.PIPE, stdout=self._log, stderr=self._log
        )
        member = Member(library, seat, process, seat.topics)
        self.members.append(member)
        self._all.append(member)
        self._note(member, "starts")

    def _close(self, member: Member) -> None:
        self._note(member, "closes")
        member.order("close")
        self._forget(member)
        # A consumer that is stopped meanwhile, or busy, does not close.
        self._later(CLOSED_S, member.kill)

    def _kill(self, member: Member) -> None:
        self._note(member, "is killed")
        member.kill()
        self._forget(member)

    def _forget(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)

    def _stop(self, member: Member) -> None:
        seconds = self.ways.session_ms / 1000 * self._chance.choice([0.3, 0.8, 1.0, 1.3, 2.0])
        self._note(member, f"pauses for {seconds:.1f} s")
        member.signal(signal.SIGSTOP)
        self._later(seconds, lambda: member.signal(signal.SIGCONT))

    def _restart(self, member: Member) -> None:
        if self._chance.random() < 0.5:
            self._kill(member)
        else:
            self._close(member)
        session_s = self.ways.session_ms / 1000
        away_s = self._chance.choice([0.0, 1.0, 3.0, 0.8 * session_s, 1.5 * session_s])
        self._note(member, f"comes back in {away_s:.1f} s")
        self._later(away_s, lambda: self._start(member.seat, member.library))

    def _work_long(self, member: Member) -> None:
        if self.ways.poll_ms > LONG_WORK_MS:
            return
        seconds = self.ways.poll_ms / 1000 * self._chance.choice([0.7, 1.2, 1.6])
        self._note(member, f"works for {seconds:.1f} s")
        member.order(f"work {seconds}")

    def _subscribe(self, member: Member) -> None:
        topics = self.topics if len(member.topics) == 1 else self.topics[:1]
        member.topics = topics
        self._note(member, f"subscribes to {topics}")
        member.order(f"subscribe {' '.join(topics)}")

    def _grow(self, _: Member) -> None:
        topic = self._chance.choice(self.topics)
        if self._partitions[topic] >= PARTITIONS_MAX:
            return
        count = self._partitions[topic] + 1
        self._note(None, f"has {count} partitions of {topic}")
        with suppress(KafkaException, TimeoutError):  # The broker is being restarted.
            self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(10)
            self._partitions[topic] = count

    def _rejoin(self, member: Member) -> None:
        self._note(member, "rejoins")
        member.order("rejoin")

    def _join_and_kill(self, member: Member) -> None:
        """Another dies, or leaves, during the join phase."""
        if len(self.members) < self.ways.size:
            self._start(self._seat())
        act = self._chance.choice([self._kill, self._kill, self._close, self._stop])
        self._later(self._chance.uniform(0.2, 4), lambda: act(member))

    def _close_and_join(self, member: Member) -> None:
        self._close(member)
        self._start(self._seat())


class Records:
    """Produces to the topics of all groups."""

    def __init__(self, bootstrap: str, groups: list[GroupLife]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **QUIET})
        self._groups = groups
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        due = dict.fromkeys([group.name for group in self._groups], 0.0)
        while not self._ends.wait(0.1):
            now_s = time.monotonic()
            for group in self._groups:
                if now_s >= due[group.name]:
                    due[group.name] = now_s + group.ways.records_s
                    for topic, count in group.partitions.items():
                        for partition in range(count):
                            with suppress(BufferError, KafkaException):
                                self._producer.produce(topic, b"", partition=partition)
            self._producer.poll(0)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()


@dataclass
class Life:
    """Some groups, until a time."""

    bootstrap: str
    groups: list[GroupLife]
    meanwhile: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """What happens to the broker: seconds after the begin, in their order."""

    def run(self, seconds: float) -> None:
        """Raises what went wrong in a group."""
        begun_s = time.monotonic()
        threads = [
            threading.Thread(target=group.run, args=(begun_s + seconds,)) for group in self.groups
        ]
        with Records(self.bootstrap, self.groups).running():
            for thread in threads:
                thread.start()
            for at_s, act in self.meanwhile:
                time.sleep(max(begun_s + at_s - time.monotonic(), 0))
                act()
            for thread in threads:
                thread.join()
        for group in self.groups:
            if group.failure is not None:
                raise group.failure

    def end(self) -> None:
        for group in self.groups:
            group.end()

    def acts(self) -> str:
        """Return what has happened, as lines of JSON."""
        acts = sorted(act for group in self.groups for act in group.acts)
        return "".join(json.dumps([round(at_s, 3), text]) + "\n" for at_s, text in acts)
