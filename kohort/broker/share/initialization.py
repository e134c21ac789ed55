"""Creates the state of share-partitions that groups initialize: in slices, as a topic may have
thousands of partitions. The heartbeat that initialized them is answered afterwards.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, Work


class NewPartition(NamedTuple):
    topic_id: bytes
    number: int
    epoch: int
    """The group's epoch."""
    is_added: bool
    """Whether the group had initialized other partitions of the topic before."""


Begin: TypeAlias = Callable[[str, NewPartition], None]
"""Creates the state of one share-partition of a group."""


@dataclass(slots=True)
class _Group:
    partitions: deque[NewPartition] = field(default_factory=deque)
    waiting: list[Deferred[None]] = field(default_factory=list)


class Initializations:
    def __init__(
        self, begin: Begin, flush: Callable[[], None], run_in_slices: Callable[[Work], None]
    ) -> None:
        """`flush` appends the created states to the state topic."""
        self._begin = begin
        self._flush = flush
        self._run_in_slices = run_in_slices
        self._groups: dict[str, _Group] = {}

    def add(self, group_id: str, partitions: list[NewPartition]) -> None:
        """Create the state of partitions: now for one slice, the rest in later slices."""
        group = self._groups.get(group_id)
        if group is not None:
            group.partitions.extend(partitions)
            return
        self._groups[group_id] = _Group(deque(partitions))
        self._run_in_slices(partial(self._run, group_id))

    def remove(self, group_id: str, partitions: frozenset[tuple[bytes, int]]) -> None:
        """Remove partitions that were deleted before their state was created."""
        group = self._groups.get(group_id)
        if group is not None:
            group.partitions = deque([p for p in group.partitions if p[:2] not in partitions])

    def under_way(self, group_id: str) -> Deferred[None] | None:
        """Return a `Deferred` that completes when the state of all added partitions exists; None if
        it exists already.
        """
        group = self._groups.get(group_id)
        if group is None:
            return None
        done: Deferred[None] = Deferred()
        group.waiting.append(done)
        return done

    def _run(self, group_id: str, time_slice: Slice) -> bool:
        group = self._groups[group_id]
        while group.partitions:
            self._begin(group_id, group.partitions.popleft())
            if time_slice.is_over() and group.partitions:
                return True
        del self._groups[group_id]
        # Flush before the heartbeat is answered: without a stored state, a restarted broker would
        # determine the start offset again, perhaps a different one.
        self._flush()
        for done in group.waiting:
            done.set_result(None)
        return False
