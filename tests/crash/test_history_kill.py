"""kill -9 around rebalances: each generation that a member heard of has its record afterwards."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.record import decode_records
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

Generation = tuple[str, int]

RECORD_WITHIN_S = 30
GENERATIONS_A_SECOND = 50

MANY_KILLS = 50
"""Some of so many come between a generation and its record."""

HEARD_MAX = 15
"""Generations before a kill."""


class Member:
    """A member on a connection of its own, which asks first and reads the answer later."""

    def __init__(self, port: int, group: str) -> None:
        self.client = RawClient(port)
        self.group = group
        self.id = ""
        self.leads = False

    def ask_join(self) -> None:
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.client.send(framed(request_body(request, 2)))

    def joined(self) -> int:
        answer = response_in(self.client.receive(), m.JoinGroupResponse, 2)
        assert answer.error_code == ErrorCode.NONE
        self.id, self.leads = answer.member_id, answer.member_id == answer.leader
        return answer.generation_id

    def sync(self, generation: int) -> bool:
        """Whether the member has its assignment."""
        share = m.SyncGroupRequestAssignment(member_id=self.id, assignment=b"share")
        request = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.id,
            assignments=[share] if self.leads else [],
        )
        answer = self.client.call(request, 1, m.SyncGroupResponse)
        return answer.error_code == ErrorCode.NONE


class Rebalancing(threading.Thread):
    """A group that rebalances until its broker dies. Not all members fetch their assignment, so
    that many rebalances stay open in the history for as long as they may.
    """

    def __init__(self, port: int, group: str, size: int, chance: random.Random) -> None:
        super().__init__(name=group)
        self.group = group
        self.heard: set[Generation] = set()
        """Generations whose assignment a member has received."""
        self.is_over = False
        self._port, self._size, self._chance = port, size, chance

    def run(self) -> None:
        members: list[Member] = []
        try:
            while not self.is_over:
                if len(members) < self._size:
                    members.append(Member(self._port, self.group))
                for member in members:
                    member.ask_join()
                (generation,) = {member.joined() for member in members}
                # The leader first: the others' are answered at once then.
                for member in sorted(members, key=lambda member: not member.leads):
                    is_asked = member.leads or self._chance.random() < 0.5
                    if is_asked and member.sync(generation):
                        self.heard.add((self.group, generation))
                time.sleep(self._chance.uniform(0, 2 / GENERATIONS_A_SECOND))
        except (OSError, EOFError):
            pass  # The broker is gone.
        finally:
            for member in members:
                member.client.close()


class History:
    """The topic, read on from where it was read to before."""

    def __init__(self) -> None:
        self.position = 0
        self.stable: Counter[Generation] = Counter()
        self.recovered = 0

    def read_on(self, port: int) -> None:
        """Until nothing more comes."""
        with RawClient(port) as client:
            while self._fetch(client):
                pass

    def _fetch(self, client: RawClient) -> bool:
        request = fetch_request(
            "__rebalance_history", self.position, max_wait_ms=100, max_bytes=1 << 22
        )
        (found,) = client.call(request, 4, m.FetchResponse).responses[0].partitions
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        assert found.error_code == ErrorCode.NONE
        begun_at = self.position
        for header, batch in split_batches(found.records or b"", partial_tail=True):
            for record in decode_records(batch):
                self._take(json.loads(record.value or b"{}"))
            self.position = header.next_offset
        return self.position > begun_at

    def _take(self, record: dict[str, object]) -> None:
        if record["kind"] == "rebalance" and record["outcome"] == "stable":
            self.stable[str(record["group"]), int(str(record["generation"]))] += 1
            self.recovered += record["recovered"] is True


def wait_heard(groups: list[Rebalancing], count: int) -> None:
    """Until members have heard of so many generations, however busy the machine is."""
    wait_until(
        lambda: sum(len(group.heard) for group in groups) >= count,
        "rebalances of the groups",
        timeout_s=RECORD_WITHIN_S,
        pause_s=0.001,
    )


def test_each_generation_that_a_member_heard_of_has_its_record_after_kill_9(
    tmp_path: Path, history_kills: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, {history_kills} kills")
    chance = random.Random(seed)
    settings = {"group.initial.rebalance.delay.ms": "0", "log.retention.check.interval.ms": "1000"}
    history, heard = History(), 0
    with KohortServer(tmp_path, overrides=settings) as broker:
        for run in range(history_kills):
            groups = [
                Rebalancing(broker.port, f"g{run}-{size}", size, random.Random(seed + run))
                for size in (1, 2, 3)
            ]
            for group in groups:
                group.start()
            wait_heard(groups, chance.randint(1, HEARD_MAX))
            time.sleep(chance.uniform(0, 0.05))
            broker.kill()
            for group in groups:
                group.is_over = True
                group.join()
            broker.start()
            expected = set().union(*(group.heard for group in groups))
            heard += len(expected)
            deadline = time.monotonic() + RECORD_WITHIN_S
            history.read_on(broker.port)
            while (missing := expected - history.stable.keys()) and time.monotonic() < deadline:
                history.read_on(broker.port)
            if run % 25 == 24:
                print(f"{run + 1} kills, {heard} generations, {history.recovered} recovered")
            assert not missing, f"kill {run}: {sorted(missing)} of {len(expected)} have no record"
        history.read_on(broker.port)
    twice = [generation for generation, count in history.stable.items() if count > 1]
    assert not twice
    print(
        f"{history_kills} kills, {heard} generations that members heard of, all in the history; "
        f"{history.recovered} of {history.stable.total()} records were made by a start"
    )
    assert heard >= history_kills
    if history_kills >= MANY_KILLS:
        assert history.recovered, "no kill came between a generation and its record"
