"""What must hold for what members are told, whatever happens; it knows nothing of states."""

from collections.abc import Callable, Iterator

from kohort.groups.requests import CommittedOffset
from kohort.protocol.errors import ErrorCode
from tests.simulation.process import Call, Process
from tests.support import messages as m

GENERATIONS_KEPT = 1_000


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
        self._shares: dict[tuple[str, int], dict[str, list[int]]] = {}
        """(group, generation) -> who -> what it was given: no restart may change it."""
        self._life = 0
        self.answers = 0
        self.generations = 0
        self._committed: dict[tuple[str, int], int] = {}
        """(group, partition) -> the position that was last answered to be stored."""
        self._untold: dict[tuple[str, int], set[int]] = {}
        """Positions that came to the broker, and that no client was told are stored."""

    def broker_died(self) -> None:
        """What was not stored is gone: those generations may come again."""
        self._life += 1
        self._latest = dict(self._stable)
        for group, generation in list(self._shares):
            if generation > self._stable.get(group, 0):
                del self._shares[group, generation]

    def saw_answer(self, call: Call) -> None:
        self.answers += 1

    def saw_request(self, call: Call) -> None:
        if isinstance(call.request, m.OffsetCommitRequest):
            key, offset = _position(call.request)
            self._untold.setdefault(key, set()).add(offset)

    def saw_answer_leave(self, call: Call, answer: object) -> None:
        """The broker has answered; the network may lose it yet."""
        group = getattr(call.request, "group_id", "")
        match answer:
            case m.JoinGroupResponse(error_code=ErrorCode.NONE, generation_id=generation):
                latest = self._latest.get(group, 0)
                if generation < latest:
                    self._fail(f"{group}: generation {generation} after {latest}")
                self.generations += generation > latest
                self._latest[group] = generation
            case m.SyncGroupResponse(error_code=ErrorCode.NONE):
                self._stable[group] = max(self._stable.get(group, 0), call.request.generation_id)
            case m.OffsetCommitResponse(topics=[topic]):
                if not topic.partitions[0].error_code:
                    key, offset = _position(call.request)
                    self._committed[key] = offset
                    self._untold[key].discard(offset)
            case _:
                pass

    def saw_assignment(self, process: Process, partitions: list[int]) -> None:
        group = process.traits.group
        shares = self._shares.setdefault((group, process.generation), {})
        if len(self._shares) > GENERATIONS_KEPT:
            del self._shares[next(iter(self._shares))]
        share = shares.setdefault(_identity(process), partitions)
        if share != partitions:
            self._fail(f"{process} had {share} in {process.generation}, and now {partitions}")
        owners = self._owners.setdefault((group, self._life, process.generation), {})
        if len(self._owners) > GENERATIONS_KEPT:
            del self._owners[next(iter(self._owners))]
        for partition in partitions:
            owner = owners.setdefault(partition, process)
            if _identity(owner) != _identity(process):
                self._fail(
                    f"{group}-{partition} belongs to {owner} and to {process} in generation "
                    f"{process.generation}"
                )

    def lost_commits(
        self, find: Callable[[str, int], CommittedOffset | None]
    ) -> Iterator[tuple[str, int, int, int | None]]:
        """Group, partition, the position that was stored last and the one that `find` finds, where
        that is neither the same nor one whose outcome no client was told.
        """
        for (group, partition), offset in self._committed.items():
            committed = find(group, partition)
            found = None if committed is None else committed.offset
            if found != offset and found not in self._untold.get((group, partition), ()):
                yield group, partition, offset, found


def _position(request: m.OffsetCommitRequest) -> tuple[tuple[str, int], int]:
    (partition,) = request.topics[0].partitions
    return (request.group_id, partition.partition_index), partition.committed_offset


def _identity(process: Process) -> str:
    """A static member that is started again has the share of the process before it."""
    return process.traits.instance or str(process.number)
