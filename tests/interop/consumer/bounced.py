"""Members that read and commit while one of them is restarted again and again; what each did.

Everything happens on one loop, so that there is one order of events: which offset was committed
last when a partition changed hands is a fact, and with it where the next owner has to begin.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Producer

from kohort import Consumer, RebalanceListener, TopicPartition, errors
from kohort.client.core.group.base_membership import MemberState
from kohort.client.group.listener import Partitions
from tests.interop.consumer.members import numbers
from tests.support.clients.confluent_client import QUIET

POLL_S = 0.05
COMMIT_EVERY = 10
"""Polls."""
PARKED = {MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE}


@dataclass
class Stint:
    """One time for which a member had a partition."""

    member: str
    begins: int
    """The offset that was committed when the partition was assigned."""
    ends: int
    """Behind the last record that was returned."""
    how: str = "has it"
    """It ended: revoked, lost or crashed."""


class Notebook:
    """Notes of which member had which partition, read and committed what, in order."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self.stints: dict[int, list[Stint]] = defaultdict(list)

    def assigned(self, member: str, partition: int) -> None:
        begins = self.committed.get(partition, 0)
        self.stints[partition].append(Stint(member, begins, begins))

    def read(self, member: str, partition: int, offset: int) -> None:
        stint = next(one for one in reversed(self.stints[partition]) if one.member == member)
        assert stint.how == "has it", f"{member} has given {partition} up, and reads it"
        assert offset == stint.ends, f"{member} reads {offset} of {partition}, not {stint.ends}"
        stint.ends += 1

    def ended(self, member: str, partition: int, how: str) -> None:
        last = next(one for one in reversed(self.stints[partition]) if one.member == member)
        last.how = how

    def has_had_any(self, member: str) -> bool:
        return any(one.member == member for stints in self.stints.values() for one in stints)

    def read_to(self, partition: int) -> int:
        return max((stint.ends for stint in self.stints[partition]), default=0)

    def check_moves(self, stayed: set[str]) -> None:
        """A member not restarted lost nothing, and gave up only what another one then got."""
        for partition, stints in self.stints.items():
            for before, after in itertools.pairwise(stints):
                if before.how == "lost":
                    # A busy machine may end the session of the member with the short one.
                    assert before.member not in stayed
                    continue
                assert before.member != after.member, f"{partition} of {before.member} paused"

    def explained_duplicates(self) -> int:
        """Records that were read twice: all of them behind the last commit of a member that died,
        or was put out.

        None can be missing: each stint begins where the last commit was, and goes on without gaps.
        """
        count = 0
        for partition, stints in self.stints.items():
            for number, after in enumerate(stints[1:], 1):
                before = stints[:number]
                read_to = max(one.ends for one in before)
                assert after.begins <= read_to, f"{partition}: no member has read {read_to}"
                # Perhaps not by the last owner, who need not have come to read anything.
                for one in before:
                    committed = one.ends <= after.begins
                    is_out = one.how in {"crashed", "lost"}
                    assert committed or is_out, f"{partition}: {one}, then {after}"
                count += max(0, min(read_to, after.ends) - after.begins)
        return count


class Writer:
    """Appends a record to every partition, round after round."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._partitions = partitions
        self._is_stopping = False
        self.rounds = 0
        """Rounds that the broker has acknowledged: as many records are in each partition."""

    async def run(self) -> None:
        while not self._is_stopping:
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % self.rounds, partition=partition)
            assert not await asyncio.to_thread(self._producer.flush, 60)
            self.rounds += 1
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._is_stopping = True


@dataclass
class Window:
    """From the moment in which a JoinGroup is sent until the assignment is there."""

    kept: frozenset[TopicPartition]
    rounds_before: int
    rounds: int = 0
    polls: int = 0
    returned: set[TopicPartition] = field(default_factory=set)

    @property
    def is_long(self) -> bool:
        """Long enough that something of each partition must have been returned: the broker and the
        member have both done much else meanwhile.
        """
        return self.polls >= 10 and self.rounds >= 10


class Reader(RebalanceListener):
    """One member: polls, and commits now and then and before it gives something up."""

    def __init__(self, name: str, notebook: Notebook, rounds: Callable[[], int]) -> None:
        self.name = name
        self.windows: list[Window] = []
        self.consumer: Consumer
        self._notebook = notebook
        self._rounds = rounds
        self._uncommitted: dict[TopicPartition, int] = {}
        self._end: str | None = None
        """How it is to end, once it is."""
        self._is_dead = False
        """Whatever it is told now, a process that died would not have heard of."""
        self._is_parked = False

    async def run(self, consumer: Consumer) -> None:
        """Until `stop` or `crash`."""
        self.consumer = consumer
        polls = 0
        while self._end is None or (self._end == "crashed" and not self._uncommitted):
            await self._poll()
            polls += 1
            if polls % COMMIT_EVERY == 0 and self._end is None:
                await self._commit(self._uncommitted)
        self._is_dead = self._end == "crashed"
        await consumer.stop(leave=not self._is_dead)

    def stop(self) -> None:
        """Commit and leave."""
        self._end = "revoked"

    def crash(self) -> None:
        """Stop amid work: with records that are not committed, and without a word to the group."""
        self._end = "crashed"

    async def _poll(self) -> None:
        window = self._window()
        for partition, records in (await self.consumer.poll(POLL_S)).items():
            for record in records:
                self._notebook.read(self.name, partition.partition, record.offset)
            self._uncommitted[partition] = records[-1].offset + 1
            if window is not None and self._state in PARKED:
                window.returned.add(partition)
        if window is not None and self._state in PARKED:
            window.polls += 1
            window.rounds = self._rounds() - window.rounds_before

    def _window(self) -> Window | None:
        if self._state not in PARKED:
            self._is_parked = False
            return None
        owned = self.consumer.assignment()
        # One poll can take over a share that is smaller and go on to the next JoinGroup.
        if not self._is_parked or self.windows[-1].kept != owned:
            self._is_parked = True
            self.windows.append(Window(owned, self._rounds()))
        return self.windows[-1]

    @property
    def _state(self) -> MemberState:
        assert self.consumer._lifecycle.engine is not None
        assert self.consumer._lifecycle.engine.member is not None
        return self.consumer._lifecycle.engine.member.membership.state

    async def _commit(self, wanted: dict[TopicPartition, int]) -> None:
        wanted = dict(wanted)
        try:
            await self.consumer.commit(wanted)
        except (errors.RebalanceInProgressError, errors.CommitFailedError):
            # The second if it was put out of its group, of which it hears when it polls.
            return
        for partition, offset in wanted.items():
            self._notebook.committed[partition.partition] = offset
            if self._uncommitted.get(partition) == offset:
                del self._uncommitted[partition]

    # What it is told.

    def on_assigned(self, partitions: Partitions) -> None:
        for partition in numbers(partitions):
            self._notebook.assigned(self.name, partition)

    async def on_revoked(self, partitions: Partitions) -> None:
        if self._is_dead:
            self._ended(partitions, "crashed")
            return
        read = {one: self._uncommitted[one] for one in partitions if one in self._uncommitted}
        if read:
            await self._commit(read)
        self._ended(partitions, "revoked")

    def on_lost(self, partitions: Partitions) -> None:
        self._ended(partitions, "crashed" if self._is_dead else "lost")

    def _ended(self, partitions: Partitions, how: str) -> None:
        for partition in partitions:
            self._uncommitted.pop(partition, None)
            self._notebook.ended(self.name, partition.partition, how)
