"""Every field of every request to a group at its extremes, in every state that a group can have.

Whatever it is, the request is answered or its connection closed, nothing is raised, no group
counts a fault or is unavailable, and a broker that is started again finds the groups as they were.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest
import uvloop

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.service import Listener
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.encoding import encode_value
from kohort.groups.records import OffsetRecord
from kohort.protocol.message import RESPONSES, schema_of
from tests.fuzz.extremes import (
    LONGEST,
    SUBSCRIPTION,
    TOPIC,
    Call,
    Probe,
    Probes,
    Scene,
    group_requests,
)
from tests.fuzz.storm import SETTINGS, Alarms
from tests.support import messages as m
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.requests import creation
from tests.support.network.wire import framed, request_body, response_in

T = TypeVar("T")
MAY_WAIT: Final = ("JoinGroupRequest", "SyncGroupRequest")
"""Requests that are answered when others have come, or when a member is gone."""

PROBES: Final = 600
"""In the short form."""

PAIRS: Final = 20_000
PER_BROKER: Final = 1_500
SECONDS: Final = 60


class Groups:
    """A broker, and clients that bring groups of it into some state."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # There is no socket that the kernel could send files to.
        broker.network.sends_files = False
        self._peers: list[MemoryTransport] = []
        self._count = 0
        self._topic_id = bytes(16)
        self.states: dict[str, Callable[[Scene], Awaitable[None]]] = {
            "absent": self._absent,
            "simple": self._simple,
            "empty": self._empty,
            "unused id": self._unused_id,
            "preparing": self._preparing,
            "completing": self._completing,
            "stable": self._stable,
            "static": self._static,
            "long names": self._long_names,
        }

    async def make_topic(self) -> None:
        await self.ask(creation(TOPIC), 5, m.CreateTopicsResponse)
        found = self._broker.services.topics.get(TOPIC)
        assert found is not None
        self._topic_id = found.topic_id
        await self._simple(Scene("warm", self._topic_id))

    async def scene(self, state: str) -> Scene:
        """A new group, brought into this state."""
        self._count += 1
        scene = Scene(f"group-{self._count}", self._topic_id)
        await self.states[state](scene)
        return scene

    async def send(self, call: Call) -> MemoryTransport:
        peer = MemoryTransport(Connection(self._broker.network, Listener("PLAINTEXT")))
        self._peers.append(peer)
        body = request_body(call.request, call.version, client_id=call.client_id)
        peer.send(framed(body))
        return peer

    async def answer(self, peer: MemoryTransport, *, turns: int = 1_000_000) -> bytes | None:
        """What comes within so many turns of the loop; None if the connection is closed or nothing
        has come.
        """
        deadline_s = asyncio.get_running_loop().time() + SECONDS
        while not (peer.taken or peer.is_closing()) and turns:
            assert asyncio.get_running_loop().time() < deadline_s, "not answered"
            await asyncio.sleep(0)
            turns -= 1
        return bytes(peer.taken[4:]) if peer.taken else None

    async def ask(
        self, request: object, version: int, response: type[T], *, client_id: bytes = b"member"
    ) -> T:
        answer = await self.answer(await self.send(Call(request, version, client_id)))
        assert answer is not None
        return response_in(answer, response, version)

    async def try_out(self, probe: Probe) -> None:
        """Send it, and see that it is answered; that may take the end of all memberships."""
        scene = await self.scene(probe.state)
        call = probe.call(scene)
        peer = await self.send(call)
        may_wait = probe.request.__name__ in MAY_WAIT
        answer = await self.answer(peer, turns=20 if may_wait else 1_000_000)
        if answer is None and not peer.is_closing():
            groups = [scene.group_id, getattr(call.request, "group_id", "")]
            await self._empty_groups(groups)
            answer = await self.answer(peer)
        if answer is not None:
            key = schema_of(probe.request).key
            assert key is not None
            response_in(answer, RESPONSES[key], probe.version)
        for group_id in (scene.group_id, getattr(call.request, "group_id", "")):
            assert not self._broker.services.groups.read_error(group_id)
        for one in self._peers:
            one.lose()
        self._peers.clear()

    async def _empty_groups(self, group_ids: list[str]) -> None:
        for group_id in group_ids:
            group = self._broker.services.groups.host.membership(group_id, ClassicMembership)
            ids = [] if group is None else [one.member_id for one in group.roster]
            members = [m.MemberIdentity(member_id=one) for one in ids]
            leave = m.LeaveGroupRequest(group_id=group_id, members=members)
            await self.ask(leave, 4, m.LeaveGroupResponse)

    def snapshot(self) -> dict[str, object]:
        """What must outlive the broker of groups that nothing goes on in.

        A position is told as its record can say it.
        """
        found: dict[str, object] = {}
        for group in self._broker.services.groups.host.groups():
            described = group.describe()
            if not (group.is_empty or described.is_stable):
                continue
            if not (described.generation or group.offsets.count):
                continue  # There is nothing to find again.
            members = {
                member.member_id: (member.instance_id, member.client_id, member.assignment)
                for member in group.describe_members()
            }
            found[group.group_id] = (
                described.state,
                described.generation,
                described.protocol_type,
                described.assignor,
                members,
                {
                    place: encode_value(OffsetRecord(group.group_id, *place, committed))
                    for place, committed in group.offsets.items()
                },
            )
        return found

    # States.

    async def _absent(self, scene: Scene) -> None:
        """There is no such group."""

    async def _simple(self, scene: Scene) -> None:
        partition = m.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        topic = m.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        commit = m.OffsetCommitRequest(group_id=scene.group_id, member_id="", topics=[topic])
        await self.ask(commit, 7, m.OffsetCommitResponse)

    async def _empty(self, scene: Scene) -> None:
        await self._stable(scene)
        await self._empty_groups([scene.group_id])

    async def _unused_id(self, scene: Scene) -> None:
        joined = await self.ask(self._join(scene), 4, m.JoinGroupResponse)
        scene.member_id = joined.member_id

    async def _completing(self, scene: Scene) -> None:
        version = 5 if scene.instance_id else 3
        joined = await self.ask(
            self._join(scene), version, m.JoinGroupResponse, client_id=scene.client_id
        )
        scene.member_id, scene.generation = joined.member_id, joined.generation_id

    async def _stable(self, scene: Scene) -> None:
        await self._completing(scene)
        share = m.SyncGroupRequestAssignment(member_id=scene.member_id, assignment=b"all")
        sync = m.SyncGroupRequest(
            group_id=scene.group_id,
            generation_id=scene.generation,
            member_id=scene.member_id,
            assignments=[share],
        )
        await self.ask(sync, 2, m.SyncGroupResponse)

    async def _static(self, scene: Scene) -> None:
        scene.instance_id = "instance"
        await self._stable(scene)

    async def _long_names(self, scene: Scene) -> None:
        scene.instance_id, scene.client_id = "i" * LONGEST, b"c" * LONGEST
        await self._stable(scene)

    async def _preparing(self, scene: Scene) -> None:
        await self._stable(scene)
        other = await self.send(Call(self._join(Scene(scene.group_id, scene.topic_id)), 3))
        await self.answer(other, turns=3)

    def _join(self, scene: Scene) -> m.JoinGroupRequest:
        return m.JoinGroupRequest(
            group_id=scene.group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id=scene.instance_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )


STATES: Final = (
    *("absent", "simple", "empty", "unused id", "preparing", "completing", "stable", "static"),
    "long names",
)


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    alarms = Alarms()
    logging.getLogger().addHandler(alarms)
    yield alarms
    logging.getLogger().removeHandler(alarms)


async def try_all(directory: Path, probes: list[Probe], alarms: Alarms) -> None:
    settings = {**SETTINGS, "log.dirs": directory}
    given = [f"{name}={value}" for name, value in settings.items()]
    unhandled: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: unhandled.append(str(context)))

    def broker() -> Broker:
        return Broker(load(overrides=given, environment={}))

    async with broker().running() as running:
        groups = Groups(running)
        await groups.make_topic()
        for probe in probes:
            try:
                await groups.try_out(probe)
            except AssertionError as error:
                raise AssertionError(f"{probe}: {error}") from error
            assert not alarms.lines, f"{probe}: {alarms.lines[0]}"
            assert not unhandled, f"{probe}: {unhandled[0]}"
        assert running.services.groups.host.stats()["faults"] == 0
        before = groups.snapshot()
    async with broker().running() as running:
        after = Groups(running).snapshot()
    differing = [name for name, state in before.items() if after.get(name) != state]
    assert not differing, f"{differing[0]}: {before[differing[0]]}, then {after.get(differing[0])}"
    assert not unhandled


def test_every_extreme_of_a_request_to_a_group_is_answered_and_counts_as_no_fault(
    tmp_path: Path, alarms: Alarms, *, long_form: bool
) -> None:
    seed = int(os.environ.get("FUZZ_SEED") or 7)
    probes = Probes(STATES, seed)
    chosen = probes.single()
    chosen = chosen + probes.paired(PAIRS) if long_form else chosen[:PROBES]
    print(f"seed {seed}, {len(chosen)} probes")
    for start in range(0, len(chosen), PER_BROKER):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            some = chosen[start : start + PER_BROKER]
            runner.run(try_all(tmp_path / str(start), some, alarms))


def test_the_apis_of_groups_are_all_found() -> None:
    names = {request.__name__.removesuffix("Request") for request, _ in group_requests()}
    assert names >= {
        *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
        *("OffsetDelete", "DeleteGroups", "DescribeGroups", "ListGroups", "FindCoordinator"),
    }
