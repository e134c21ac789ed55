"""What must hold for what members are told, whatever happens; it knows nothing of states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from tests.simulation.process import Call, Process


class Witness:
    """`fail` is told what is wrong."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._owners: dict[tuple[str, int, int], dict[int, Process]] = {}
        """(group, start of the broker, generation) -> partition -> who it was given to."""
        self._latest: dict[str, int] = {}
        """The highest generation that a join was answered with since the broker started."""
        self._stable: dict[str, int] = {}
        """The highest that somebody got a share of."""
        self._life = 0
        self.answers = 0
        self.generations = 0
        self._committed: dict[tuple[str, int], int] = {}
        """The highest position that somebody was told is stored."""

    def broker_died(self) -> None:
        """What was not stored is gone: those generations may come again."""
        self._life += 1
        self._latest = dict(self._stable)

    def saw_answer(self, call: Call) -> None:
        """It has reached its process."""
        self.answers += 1

    def saw_answer_leave(self, call: Call, answer: object) -> None:
        """The broker has answered; the network may lose it yet."""
        group = call.request.group_id
        match answer:
            case JoinGroupResponse(error_code=ErrorCode.NONE, generation_id=generation):
                latest = self._latest.get(group, 0)
                if generation < latest:
                    self._fail(f"{group}: generation {generation} after {latest}")
                self.generations += generation > latest
                self._latest[group] = generation
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self._stable[group] = max(self._stable.get(group, 0), call.request.generation_id)
            case _:
                pass

    def saw_assignment(self, process: Process, partitions: list[int]) -> None:
        group = process.traits.group
        owners = self._owners.setdefault((group, self._life, process.generation), {})
        if len(self._owners) > 1_000:
            del self._owners[next(iter(self._owners))]
        for partition in partitions:
            owner = owners.setdefault(partition, process)
            if _identity(owner) != _identity(process):
                self._fail(
                    f"{group}-{partition} belongs to {owner} and to {process} in generation "
                    f"{process.generation}"
                )

    def saw_commit(self, group: str, partition: int, offset: int) -> None:
        """The process was told that it is stored."""
        key = (group, partition)
        self._committed[key] = max(self._committed.get(key, 0), offset)

    def all_committed(self) -> Iterable[tuple[tuple[str, int], int]]:
        return self._committed.items()


def _identity(process: Process) -> str:
    """A static member that is started again has the share of the process before it."""
    return process.traits.instance or str(process.number)
