"""Cooperative rebalancing under restarts: who is not restarted reads on as if nothing were."""

import asyncio
import itertools

import pytest

from tests.interop.consumer.bounced import Notebook, Reader, Window, Writer
from tests.interop.consumer.members import TIMEOUT_S, Members, Topics

PARTITIONS = 8
EVERY_S = 1.0
SESSIONS_MS = (1_500, 6_000, 24_000)
"""Session timeouts of the member that is restarted. A rebalance after its crash takes as long; on a
busy machine, in which little else happens meanwhile, a longer one shows more.
"""


class Bounce:
    """Four members of one group, the last of which is restarted."""

    def __init__(self, members: Members, topic: str) -> None:
        self.notebook = Notebook()
        self.writer = Writer(members.bootstrap, topic, PARTITIONS)
        self.stayers: list[Reader] = []
        self._members = members
        self._topic = topic
        self._names = (f"m{number}" for number in itertools.count())

    async def start(
        self, group: asyncio.TaskGroup, session_timeout_ms: int = 60_000
    ) -> tuple[Reader, asyncio.Task[None]]:
        """One more member."""
        reader = Reader(next(self._names), self.notebook, lambda: self.writer.rounds)
        consumer = await self._members.start(
            self._topic,
            listener=reader,
            enable_auto_commit=False,
            session_timeout_ms=session_timeout_ms,
        )
        return reader, group.create_task(reader.run(consumer))

    def long_windows(self) -> list[Window]:
        windows = [window for reader in self.stayers for window in reader.windows]
        return [window for window in windows if window.is_long]

    async def run(self, restarts: int) -> None:
        """From the first record to the last, which everybody has read and committed.

        Two more restarts for each longer session until a rebalance has taken long.
        """
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self.writer.run())
            self.stayers = [(await self.start(tasks))[0] for _ in range(3)]
            sessions = iter(SESSIONS_MS)
            session_ms = next(sessions)
            last, running = await self.start(tasks, session_ms)
            for number in itertools.count():
                if number >= restarts and number % 2:
                    session_ms = 0 if self.long_windows() else next(sessions, 0)
                    if not session_ms:
                        break
                await asyncio.sleep(EVERY_S)
                await self._wait_has_some(last)
                if number % 2:
                    last.stop()
                else:
                    last.crash()
                await running
                last, running = await self.start(tasks, session_ms)
            self.writer.stop()
            await writing
            await self._wait_all_read()
            for reader in [*self.stayers, last]:
                reader.stop()

    async def _wait_has_some(self, reader: Reader) -> None:
        """What others let go for it would else come back to them."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.notebook.has_had_any(reader.name):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _wait_all_read(self) -> None:
        written = self.writer.rounds
        async with asyncio.timeout(TIMEOUT_S):
            for partition in range(PARTITIONS):
                while self.notebook.read_to(partition) < written:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "restarts",
    [3, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
async def test_partitions_that_stay_are_read_on_while_one_of_four_members_is_restarted(
    restarts: int, topics: Topics, members: Members
) -> None:
    """No record is lost; what is read twice was read by a member that died before it committed."""
    bounce = Bounce(members, topics.create(PARTITIONS))
    await bounce.run(restarts)
    notebook = bounce.notebook
    written = bounce.writer.rounds
    assert [notebook.read_to(one) for one in range(PARTITIONS)] == [written] * PARTITIONS
    notebook.check_moves({reader.name for reader in bounce.stayers})
    assert notebook.explained_duplicates() > 0

    assert [one for one in bounce.long_windows() if not one.kept <= one.returned] == []
