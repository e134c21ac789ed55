"""kill -9 for watchers: what readers of their history see is as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.watch.core.left_out import OWN_GROUP
from tests.support import messages as m
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import RawMember, bring_together, settle, share
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

Json = dict[str, Any]

SESSION_MS = 1_500
"""Of watchers."""

MEMBER_SESSION_MS = 1_800_000
"""Of members, which send no heartbeats between two rebalances."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
}
GROUP_COUNT = 3
IN_TIME_S = 120

FORKING = f"""
import os, signal, sys
import kohort.watch.membership as membership
from kohort.cli import main
import kohort.cli.watch, kohort.watch.history_topic

membership.SESSION_MS, membership._HEARTBEAT_MS = {SESSION_MS}, {SESSION_MS // 5}
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        *arguments, out = line.split()
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        os._exit(main(["watch", *arguments]))
    print(child, flush=True)
"""
"""Starts watchers, without the half a second that imports take."""


class Watcher:
    """A process that follows the groups."""

    def __init__(self, pid: int, out: Path) -> None:
        self.pid = pid
        self._is_killed = False
        self._out = out

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def is_following(self) -> bool:
        return "Watching" in self.output

    def kill(self) -> None:
        if self._is_killed:
            return  # Another process may have its id.
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: not self.is_alive, "its end", pause_s=0.01)

    @property
    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Lab:
    """A broker, groups that rebalance, and watchers."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.server = server
        self.directory = directory
        name = f"lab-{os.urandom(4).hex()}"
        self.topic = name
        self.groups = [f"{name}-{number}" for number in range(GROUP_COUNT)]
        self._forking = subprocess.Popen(
            [sys.executable, "-c", FORKING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchers: list[Watcher] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for watcher in self._watchers:
            watcher.kill()
        with self._forking as forking:
            assert forking.stdin is not None
            forking.stdin.close()

    def start(self, history: str) -> Watcher:
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        out = self.directory / f"watcher-{len(self._watchers)}"
        arguments = f"--bootstrap-server {self.server.bootstrap} --history {history} --http none"
        self._forking.stdin.write(f"{arguments} {out}\n")
        self._forking.stdin.flush()
        pid = int(self._forking.stdout.readline())
        watcher = Watcher(pid, out)
        self._watchers.append(watcher)
        wait_until(out.exists, "its output", pause_s=0.001)
        return watcher

    @contextmanager
    def watcher(self, history: str) -> Iterator[Watcher]:
        watcher = self.start(history)
        try:
            yield watcher
            assert watcher.is_alive, watcher.output
        finally:
            watcher.kill()

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def in_directory(self, name: str) -> list[Json]:
        """What a directory has of the groups."""
        lines = [
            line
            for file in sorted((self.directory / name).glob("*.jsonl"))
            for line in file.read_text().splitlines(keepends=True)
        ]
        return self._records([line for line in lines if line.endswith("\n")])

    def in_topic(self) -> list[Json]:
        """What the topic has of the groups."""
        command = ["consume", self.topic, "--from-beginning", "--exit"]
        where = ["--bootstrap-server", self.server.bootstrap]
        read = subprocess.run(
            [sys.executable, "-m", "kohort.cli", *command, *where],
            check=True,
            capture_output=True,
            text=True,
        )
        return self._records(read.stdout.splitlines())

    def _records(self, lines: list[str]) -> list[Json]:
        records = [json.loads(line) for line in lines]
        return [record for record in records if record["group"] in self.groups]

    @contextmanager
    def living(self) -> Iterator[Living]:
        """The groups, which rebalance whenever they are asked to."""
        groups = [Rebalancing(self.server.port, group) for group in self.groups]
        for group in groups:
            group.start()
        living = Living(groups)
        try:
            yield living
        finally:
            living.stop()


class Living:
    def __init__(self, groups: list[Rebalancing]) -> None:
        self._groups = groups

    def rebalance(self, chance: random.Random) -> None:
        """Let a group begin to rebalance."""
        chance.choice(self._groups).due.release()

    def stop(self) -> dict[str, int]:
        """Return the generation of each group that has any."""
        for group in self._groups:
            group.is_over = True
            group.due.release()
        for group in self._groups:
            group.join()
            assert group.failure is None, group.failure
        return {group.name: group.generation for group in self._groups if group.generation}


class Rebalancing(threading.Thread):
    """A group with a leader, which another member joins and leaves."""

    def __init__(self, port: int, group: str) -> None:
        super().__init__(name=group)
        self.is_over = False
        self.due = threading.Semaphore(0)
        """As often as it is released, the group makes two rebalances."""
        self.generation = 0
        self.failure: BaseException | None = None
        self._port, self._group = port, group
        self._leader = self._member()

    def run(self) -> None:
        try:
            while self.due.acquire() and not self.is_over:
                self._step()
        except BaseException as error:
            self.failure = error
            raise

    def _step(self) -> None:
        """The follower joins and leaves."""
        follower = self._member()
        if self._leader.member_id:
            probe = GroupProbe(self._port, self._group)
            waiting = follower.arrive()
            wait_until(lambda: len(probe.describe().members) == 2, "the follower", pause_s=0.01)
            assert not self._leader.join().answer().error_code
            assert not waiting.answer().error_code
        else:
            bring_together(GroupProbe(self._port, self._group), self._leader, follower)
        settle(self._leader, follower)
        self._leave(follower)
        assert not self._leader.join().answer().error_code
        assert not self._leader.sync({self._leader.member_id: share("t", 0, 1)}).error_code
        self.generation = self._leader.generation

    def _member(self) -> RawMember:
        return RawMember(self._port, self._group, session_timeout_ms=MEMBER_SESSION_MS)

    def _leave(self, member: RawMember) -> None:
        request = m.LeaveGroupRequest(group_id=member.group, member_id=member.member_id)
        with RawClient(self._port) as client:
            assert not client.call(request, 1, m.LeaveGroupResponse).error_code


def facts(value: Any) -> Any:  # noqa: ANN401 - JSON.
    """What does not depend on polls, which are not made while no watcher runs: they add to how
    sure it is, and to the times.
    """
    if isinstance(value, list):
        return [facts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: facts(item)
        for name, item in value.items()
        if name not in {"by", "certainty", "candidates", "evidence"} and not name.endswith("_ms")
    }


Key = tuple[str, int]
"""Group and sequence number."""


def seen(records: list[Json]) -> dict[Key, Json]:
    """What readers see: of several records with one number the first."""
    by_key: dict[Key, Json] = {}
    for record in records:
        first = by_key.setdefault((record["group"], record["sequence"]), record)
        assert first["observed"]["offset"] == record["observed"]["offset"]
    return by_key


def compare(disturbed: list[Json], whole: list[Json]) -> None:
    expected = seen(whole)
    assert len(expected) == len(whole)
    found = seen(disturbed)
    assert found.keys() == expected.keys()
    for key, record in expected.items():
        assert facts(found[key]) == facts(record)


def wait_complete(read: Callable[[], list[Json]], generations: dict[str, int]) -> list[Json]:
    """Return the history when it has the last generation of each group."""

    def is_so() -> bool:
        last = {record["group"]: record["generation"] for record in read()}
        return last == generations

    wait_until(is_so, lambda: f"{generations}: {read()[-3:]}", timeout_s=IN_TIME_S, pause_s=0.2)
    return read()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(KohortServer, id="kohort"),
        pytest.param(KafkaServer, id="kafka", marks=pytest.mark.long),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    kind: type[KohortServer | KafkaServer] = request.param
    with kind(tmp_path_factory.mktemp("broker"), overrides=SETTINGS) as server:
        find_coordinator(server.port)
        yield server


def find_coordinator(port: int) -> None:
    """Kafka creates the topic of the groups now."""
    request = m.FindCoordinatorRequest(key=OWN_GROUP)

    def is_there() -> bool:
        with RawClient(port) as client:
            answer = client.call(request, 1, m.FindCoordinatorResponse)
            return answer.error_code == ErrorCode.NONE

    wait_until(is_there, "a coordinator")


def test_a_watcher_that_is_killed_has_the_history_of_one_that_is_not(
    server: ServerProcess, tmp_path: Path, watch_kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {watch_kills} kills")
    chance = random.Random(seed)
    with (
        Lab(server, tmp_path) as lab,
        lab.watcher(lab.path("whole")),
        lab.living() as living,
    ):
        stores = [lab.path("cut"), f"topic:{lab.topic}"]
        for kill in range(watch_kills):
            living.rebalance(chance)
            watchers = [lab.start(store) for store in stores]
            if chance.random() < 0.5:
                for watcher in watchers:
                    wait_until(lambda: watcher.is_following, watcher.output, pause_s=0.01)  # noqa: B023
            chance.shuffle(watchers)
            for watcher in watchers:
                time.sleep(chance.uniform(0, 0.8))
                assert watcher.is_alive, watcher.output
                watcher.kill()
            if kill % 25 == 24:
                print(f"{kill + 1} kills, {len(lab.in_directory('cut'))} records")
        generations = living.stop()
        whole = wait_complete(lambda: lab.in_directory("whole"), generations)
        with lab.watcher(stores[0]), lab.watcher(stores[1]):
            cut = wait_complete(lambda: lab.in_directory("cut"), generations)
            topic = wait_complete(lab.in_topic, generations)
    assert len(cut) == len(whole)
    # What a killed watcher had sent may be appended after the next one has read the topic.
    assert len(topic) < 2 * len(whole)
    compare(cut, whole)
    compare(topic, whole)
    print(
        f"{watch_kills} kills of each: {len(whole)} records in the directory and the topic, "
        f"{len(topic) - len(whole)} repeated in the topic"
    )
