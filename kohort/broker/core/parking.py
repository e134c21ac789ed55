"""Limits the operations that wait in the purgatory, in total and per owner."""

from collections.abc import Hashable
from typing import NamedTuple

from kohort.broker.core.delayed_operation import DelayedOperation


class ParkingLimits(NamedTuple):
    """The limits. Further operations are answered at once, as if they had expired."""

    count_max: int = 250_000
    bytes_max: int = 512 * 1024 * 1024
    owner_count_max: int = 64
    owner_bytes_max: int = 128 * 1024 * 1024


class _Share:
    """The parked operations of one owner."""

    __slots__ = ("held_bytes", "operations")

    def __init__(self) -> None:
        self.operations: dict[DelayedOperation, None] = {}
        self.held_bytes = 0


class Parking:
    """The waiting operations, in order of arrival, and the usage of each owner."""

    __slots__ = ("_limits", "_operations", "_shares", "held_bytes")

    def __init__(self, limits: ParkingLimits) -> None:
        self._limits = limits
        self._operations: dict[DelayedOperation, None] = {}
        self._shares: dict[Hashable, _Share] = {}
        self.held_bytes = 0
        """Sum of the waiting operations' `held_bytes`."""

    def __len__(self) -> int:
        return len(self._operations)

    def __contains__(self, operation: DelayedOperation) -> bool:
        return operation in self._operations

    def all(self) -> list[DelayedOperation]:
        return list(self._operations)

    def of_owner(self, owner: Hashable) -> list[DelayedOperation]:
        share = self._shares.get(owner)
        return [] if share is None else list(share.operations)

    def has_room_for(self, operation: DelayedOperation) -> bool:
        limits = self._limits
        if len(self._operations) >= limits.count_max:
            return False
        if self.held_bytes + operation.held_bytes > limits.bytes_max:
            return False
        if operation.owner is None:
            return True
        share = self._shares.get(operation.owner)
        if share is None:
            return limits.owner_count_max > 0 and operation.held_bytes <= limits.owner_bytes_max
        return (
            len(share.operations) < limits.owner_count_max
            and share.held_bytes + operation.held_bytes <= limits.owner_bytes_max
        )

    def add(self, operation: DelayedOperation) -> None:
        self._operations[operation] = None
        self.held_bytes += operation.held_bytes
        if operation.owner is None:
            return
        share = self._shares.get(operation.owner)
        if share is None:
            share = self._shares[operation.owner] = _Share()
        share.operations[operation] = None
        share.held_bytes += operation.held_bytes

    def remove(self, operation: DelayedOperation) -> None:
        del self._operations[operation]
        if not self._operations:
            # A new dict, because an emptied one keeps the table of its largest size.
            self._operations = {}
        self.held_bytes -= operation.held_bytes
        if operation.owner is None:
            return
        share = self._shares[operation.owner]
        del share.operations[operation]
        share.held_bytes -= operation.held_bytes
        if not share.operations:
            del self._shares[operation.owner]
            if not self._shares:
                self._shares = {}
