"""Groups that do not rest, on a real broker, and what the broker says of them."""

import json
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer

from kohort.cli import main
from tests.pipeline.topics import Topics
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import RawMember, bring_together, settle, share
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

Record: TypeAlias = dict[str, Any]
"""An event of the history, as JSON."""


class Churn:
    """A broker with groups, some of which do not rest."""

    def __init__(self, server: KohortServer, http_port: int) -> None:
        self.server = server
        self._http_port = http_port
        Topics(server.bootstrap).create(6, name="orders")

    def probe(self, group: str) -> GroupProbe:
        return GroupProbe(self.server.port, group, self._http_port)

    def eager(self, group: str) -> None:
        """Two members, one of which joins again twice; then both leave."""
        leader, follower = (RawMember(self.server.port, group) for _ in range(2))
        probe = self.probe(group)
        bring_together(probe, leader, follower)
        settle(leader, follower)
        for partitions in ((0, 1), (0, 0)):
            waiting = leader.join(text="cached metadata has changed")
            wait_until(lambda: probe.describe().group_state == "PreparingRebalance", "it begins")
            assert not follower.join().answer().error_code
            assert not waiting.answer().error_code
            shares = {
                leader.member_id: share("orders", *range(partitions[0] + 1)),
                follower.member_id: share("orders", 5 - partitions[1]),
            }
            assert not leader.sync(shares).error_code
            assert not follower.sync().error_code
        self._leave(follower)
        self._leave(leader)

    def _leave(self, member: RawMember) -> None:
        # Sessions would end amid the jobs, whenever that is.
        leaving = m.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
        request = m.LeaveGroupRequest(group_id=member.group, members=[leaving])
        with RawClient(member.port) as client:
            assert not client.call(request, 5, m.LeaveGroupResponse).error_code

    def static(self, group: str) -> None:
        """A static member that comes back and disturbs no other member, and leaves."""
        first = RawMember(self.server.port, group, instance_id="one")
        assert not first.join().answer().error_code
        assert not first.sync({first.member_id: share("orders", 3)}).error_code
        again = RawMember(self.server.port, group, instance_id="one")
        assert not again.join().answer().error_code
        self._leave(again)

    def cooperative(self, group: str) -> None:
        """A real client, a second one, and both leave."""
        settings = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 300,
            "log_level": 0,
        }
        consumers = [Consumer(settings | {"client.id": name}) for name in ("one", "two")]
        held = [0, 0]

        def poll(*expected: int) -> bool:
            for number, consumer in enumerate(consumers[: len(expected)]):
                consumer.poll(0.1)
                held[number] = len(consumer.assignment())
            return held[: len(expected)] == list(expected)

        consumers[0].subscribe(["orders"])
        wait_until(lambda: poll(6), lambda: f"the first has all: {held}")
        consumers[1].subscribe(["orders"])
        wait_until(lambda: poll(3, 3), lambda: f"they share: {held}")
        consumers[0].close()
        consumers.reverse()
        wait_until(lambda: poll(6), lambda: f"the second has all: {held}")
        consumers[0].close()

    def why(self, group: str, capsys: pytest.CaptureFixture[str]) -> list[Record]:
        """What `kohort groups why --json` says, once everybody has left and all is stored."""
        records: list[Record] = []

        def why_from(*address: str) -> list[Record]:
            capsys.readouterr()
            arguments = ["--json", "--avoided", "--last", "1000", *address]
            if main(["groups", "why", group, *arguments]):
                return []
            found: list[Record] = json.loads(capsys.readouterr().out)["rebalances"]
            return found

        def is_over() -> bool:
            records[:] = why_from("--http", f"http://127.0.0.1:{self._http_port}")
            outcomes = [one["outcome"] for one in records if one["kind"] == "rebalance"]
            if outcomes[-1:] != ["empty"] or "running" in outcomes:
                return False
            stored = why_from("--http", "none", "--bootstrap-server", self.server.bootstrap)
            return len(stored) == len(records)

        wait_until(is_over, lambda: f"{group} is left by all: {records}")
        return records
