"""The partitions of a topic, each opened when it is first used.

After a clean stop nothing of a partition has to be looked at before it is asked for, so a
broker with thousands of them starts as fast as an empty one; and the fifty partitions of
__consumer_offsets get a directory only when a group comes to live in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from kohort.broker.topics.partition import FIRST_LEADER_EPOCH, Partition


class PartitionList(Sequence[Partition]):
    """Partitions by index, without gaps."""

    def __init__(
        self,
        count: int,
        open_partition: Callable[[int], Partition],
        on_offline: Callable[[Partition], None] = lambda _: None,
        unopened_epoch: Callable[[int], int] = lambda _: FIRST_LEADER_EPOCH,
    ) -> None:
        """``on_offline`` is told whenever a partition that is offline is asked for, and
        ``unopened_epoch`` tells the leader epoch of one that is not open.
        """
        self.revision = 0
        """Changes with what clients are told of the partitions, beside who is online."""
        self._open_partition = open_partition
        self._on_offline = on_offline
        self._unopened_epoch = unopened_epoch
        self._partitions: list[Partition | None] = [None] * count

    def __len__(self) -> int:
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        partition = self._partitions[index]
        if partition is None:
            index %= len(self)
            partition = self._partitions[index] = self._open_partition(index)
            if partition.leader_epoch != self._unopened_epoch(index):
                self.revision += 1
        elif partition.failure is not None:
            self._on_offline(partition)
        return partition

    def peek(self, index: int) -> Partition | None:
        """A partition if it is open already."""
        return self._partitions[index]

    def leader_epoch(self, index: int) -> int:
        """What clients are told is the leader epoch of a partition; opens none."""
        partition = self._partitions[index]
        return self._unopened_epoch(index) if partition is None else partition.leader_epoch

    def leader_epochs(self) -> list[int]:
        """`leader_epoch` of all."""
        unopened_epoch = self._unopened_epoch
        return [
            unopened_epoch(index) if partition is None else partition.leader_epoch
            for index, partition in enumerate(self._partitions)
        ]

    def opened(self) -> Iterator[Partition]:
        """Partitions that are open, by index."""
        return (partition for partition in self._partitions if partition is not None)

    def is_online(self, index: int) -> bool:
        """Whether requests for a partition are served; one that was not used yet is.

        Clients turn away from one that is not, so this question counts as asking for it.
        """
        partition = self._partitions[index]
        if partition is None or partition.failure is None:
            return True
        self._on_offline(partition)
        return False

    def are_online(self) -> bool:
        """Whether `is_online` holds for all of them; counts as asking for none."""
        for partition in self._partitions:
            if partition is not None and partition.failure is not None:
                return False
        return True

    def open_all(self) -> bool:
        """Open all, perhaps on another thread, before anybody uses them; whether that worked."""
        return all(partition.failure is None for partition in self[:])

    def replace(self, partition: Partition) -> None:
        """Put a partition in the place of the one with its index."""
        self._partitions[partition.index] = partition
        self.revision += 1

    def extend(self, partitions: Iterable[Partition]) -> None:
        """Add partitions at the end."""
        self._partitions.extend(partitions)
        self.revision += 1
