"""Operations that wait for a condition or a deadline, whichever comes first.

A `DelayedOperation` waits under watch keys (a partition, a group). Code that changes the partition
or group of a key then calls `check_and_complete(key)`; `drain` tries the operations under the key.
`KeyedTimers` are for callers that only need deadlines of their own.

Guarantees, which all depend on a single thread and on the absence of await here:

- Every operation completes exactly once: by its condition, its deadline, an error, a cancellation
  or the shutdown. It is removed from all its keys and the wheel at that moment.
- No event is lost between the last check of an operation and its registration under its keys,
  because nothing runs between them.
- Nothing expires early, and a condition that holds when the deadline is processed counts as
  success.
- Wake-ups are queued and processed by `drain`, never recursively, however long a chain of
  operations wake each other. A walk over a key visits the operations that were registered when it
  began.
- An exception in one operation is reported, fails that operation and touches no other.
- Equal deadlines fire in scheduling order; a key's operations are tried in registration order.

Prior art: Kafka's DelayedOperationPurgatory. Its double check, its purge of completed entries and
its 512 shards exist because of threads and have no counterpart here.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.core.timing_wheel import KeyedEntry, KeyedTimers, TimerEntry, TimingWheel


class ParkingLimits(NamedTuple):
    """Limits on waiting operations. Further ones are answered at once, as if they had expired."""

    count_max: int = 250_000
    bytes_max: int = 512 * 1024 * 1024
    owner_count_max: int = 64
    owner_bytes_max: int = 128 * 1024 * 1024


class _Share:
    __slots__ = ("held_bytes", "operations")

    def __init__(self) -> None:
        self.operations: dict[DelayedOperation, None] = {}
        self.held_bytes = 0


class Parking:
    """The waiting operations, in order of arrival, and each owner's operations and bytes."""

    __slots__ = ("_limits", "_operations", "_shares", "held_bytes")

    def __init__(self, limits: ParkingLimits) -> None:
        self._limits = limits
        self._operations: dict[DelayedOperation, None] = {}
        self._shares: dict[Hashable, _Share] = {}
        self.held_bytes = 0

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


__all__ = [
    "Completion",
    "DelayedOperation",
    "Driver",
    "KeyedTimers",
    "ParkingLimits",
    "Purgatory",
]

K = TypeVar("K", bound=Hashable)

ENTRIES_PER_TURN = 1_000
"""The number of entries that `drain` or `expire` examines per call by default: a few milliseconds
of work."""

Report = Callable[[str, Exception], None]
"""Called with a description of the action and the exception, which is always an internal error."""


class Driver(Protocol):
    """Calls `drain` and `expire` when requested."""

    def wake_soon(self) -> None:
        """Request a call of `drain`."""
        ...

    def wake_at(self, deadline_ms: int) -> None:
        """Request a call of `expire` at this time, which is earlier than requested before."""
        ...


class _Walk:
    """A walk over the operations that waited under a changed key when the walk began."""

    __slots__ = ("key", "operations", "position")

    def __init__(self, key: Hashable, operations: list[DelayedOperation]) -> None:
        self.key = key
        self.operations = operations
        self.position = 0


class Purgatory:
    def __init__(self, *, report: Report, limits: ParkingLimits | None = None) -> None:
        self._report = report
        self._parking = Parking(limits or ParkingLimits())
        self._driver: Driver | None = None
        self._wheel: TimingWheel[TimerEntry] = TimingWheel()
        self._announced_ms: int | None = None
        self.watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        """The waiting operations by key; `check_and_complete` does nothing for any other key."""
        self._woken_keys: dict[Hashable, None] = {}
        self._walk: _Walk | None = None
        self._is_draining = False
        self._is_shut_down = False
        self._watch_counts: dict[str, int] = {}
        self._waiting_counts: dict[str, int] = {}

    # Called by waiters.

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[Hashable], deadline_ms: int
    ) -> bool:
        """Complete `operation` now if its condition is satisfied, else let it wait; True if
        completed.

        It is also completed at once if the broker is stopping or the purgatory is full. The
        caller must not await between its own check of the state and this call.
        """
        assert not operation.is_completed
        assert operation not in self._parking
        if self._try(operation, None):
            return True
        if self._is_shut_down:
            self._complete(operation, Completion.SHUTDOWN)
        elif not self._parking.has_room_for(operation):
            self._complete(operation, Completion.REFUSED)
        else:
            self._park(operation, keys)
            self.schedule_entry(operation, deadline_ms)
        return operation.is_completed

    def check_and_complete(self, key: Hashable) -> None:
        """Have `drain` try the operations under `key`, whose state has changed.

        Cheap if no operation waits. If a key changes repeatedly before `drain` comes to it, its
        operations are tried only once.
        """
        if key not in self.watched:
            return
        self._woken_keys[key] = None
        if not self._is_draining and self._driver is not None:
            self._driver.wake_soon()

    def cancel_operation(self, operation: DelayedOperation) -> bool:
        """Complete `operation` without an answer; False if it was completed already."""
        if operation.is_completed:
            return False
        self._release(operation)
        try:
            operation.on_cancelled()
        except Exception as error:  # noqa: BLE001
            self._report(f"cancelling a delayed {operation.kind}", error)
        return True

    def cancel_owner(self, owner: Hashable) -> int:
        """Cancel all operations of a client that has disconnected; return how many."""
        operations = self._parking.of_owner(owner)
        return sum(self.cancel_operation(operation) for operation in operations)

    def keyed_timers(
        self, on_expired: Callable[[list[K], int], None], *, kind: str
    ) -> KeyedTimers[K]:
        """Create timers for one owner, with `schedule(key, deadline_ms)` and `cancel(key)`.

        `on_expired(keys, now_ms)` is called with all keys that expire in one event loop iteration;
        `kind` is the name of the timers in the metrics.
        """
        return KeyedTimers(self, on_expired, kind)

    # Called by the driver.

    def attach(self, driver: Driver) -> None:
        """Set the driver, which is called when there is work."""
        assert self._driver is None, "one driver per purgatory"
        self._driver = driver
        self._announced_ms = self.next_deadline_ms
        if self._announced_ms is not None:
            driver.wake_at(self._announced_ms)
        if self.has_work:
            driver.wake_soon()

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `expire` has work; None if never."""
        return self._wheel.next_deadline_ms

    @property
    def has_work(self) -> bool:
        return self._walk is not None or bool(self._woken_keys)

    def drain(self, operations_max: int = ENTRIES_PER_TURN) -> int:
        """Try the operations of changed keys, and the operations that these wake.

        Stops after `operations_max`; `has_work` says whether to call again. Returns how many were
        tried.
        """
        assert not self._is_draining, "an operation's completion must not drain"
        self._is_draining = True
        tried = 0
        try:
            while tried < operations_max and self.has_work:
                tried += self._walk_on(operations_max - tried)
        finally:
            self._is_draining = False
        return tried

    def expire(self, now_ms: int, entries_max: int = ENTRIES_PER_TURN) -> int:
        """Complete operations due at `now_ms`, earliest deadline first.

        Examines at most `entries_max`; call again while `next_deadline_ms` is due. Returns how many
        operations and keyed timers were due.
        """
        due = self._wheel.take_due(now_ms, entries_max)
        batches: dict[KeyedTimers[Any], list[TimerEntry]] = {}
        for entry in due:
            if isinstance(entry, DelayedOperation):
                # An earlier entry of this batch may have completed it.
                if not entry.is_completed and not self._try(entry, None):
                    self._complete(entry, Completion.EXPIRED)
            else:
                assert isinstance(entry, KeyedEntry)
                batches.setdefault(entry.sink, []).append(entry)
        for sink, entries in batches.items():
            try:
                sink.fire(entries, now_ms)
            except Exception as error:  # noqa: BLE001
                self._report("delivering expired timers", error)
        self._announced_ms = self.next_deadline_ms
        return len(due)

    def shutdown(self) -> None:
        """Complete all operations now, and new ones when they arrive; timers are not affected."""
        self._is_shut_down = True
        while self._parking:
            for operation in self._parking.all():
                if not operation.is_completed:
                    self._complete(operation, Completion.SHUTDOWN)

    # Metrics.

    def stats(self) -> dict[str, dict[str, int]]:
        """Return counts per kind: `watched` counts an operation once per key, `delayed` once."""
        return {
            kind: {"watched": self._watch_counts.get(kind, 0), "delayed": count}
            for kind, count in self._waiting_counts.items()
        }

    @property
    def waiting_count(self) -> int:
        """Number of waiting operations and deadlines, of all kinds."""
        return sum(self._waiting_counts.values())

    @property
    def held_bytes(self) -> int:
        return self._parking.held_bytes

    # Called by KeyedTimers.

    def schedule_entry(self, entry: TimerEntry, deadline_ms: int) -> None:
        self._wheel.schedule(entry, deadline_ms)
        if self._announced_ms is None or deadline_ms < self._announced_ms:
            self._announced_ms = deadline_ms
            if self._driver is not None:
                self._driver.wake_at(deadline_ms)

    def cancel_entry(self, entry: TimerEntry) -> bool:
        return self._wheel.cancel(entry)

    def count_timers(self, kind: str, change: int) -> None:
        self._waiting_counts[kind] = self._waiting_counts.get(kind, 0) + change

    # Internals.

    def _walk_on(self, operations_max: int) -> int:
        """Continue the walk in progress, or begin one; return the number of operations visited."""
        walk = self._walk
        if walk is None:
            key = next(iter(self._woken_keys))
            del self._woken_keys[key]
            walk = self._walk = _Walk(key, list(self.watched.get(key, ())))
        first = walk.position
        walk.position += operations_max
        operations = walk.operations[first : walk.position]
        if walk.position >= len(walk.operations):
            self._walk = None
        for operation in operations:
            if not operation.is_completed:
                self._try(operation, walk.key)
        return max(1, len(operations))

    def _try(self, operation: DelayedOperation, key: Hashable | None) -> bool:
        """Complete `operation` if its condition is satisfied; return whether it is completed."""
        try:
            holds = operation.try_complete(key)
        except Exception as error:  # noqa: BLE001
            self._report(f"checking a delayed {operation.kind}", error)
            self._release(operation)
            self._fail(operation, error)
            return True
        if holds and not operation.is_completed:
            self._complete(operation, Completion.SATISFIED)
        return operation.is_completed

    def _complete(self, operation: DelayedOperation, completion: Completion) -> None:
        self._release(operation)
        try:
            operation.on_complete(completion)
        except Exception as error:  # noqa: BLE001
            self._report(f"completing a delayed {operation.kind}", error)
            self._fail(operation, error)

    def _fail(self, operation: DelayedOperation, error: Exception) -> None:
        try:
            operation.on_failed(error)
        except Exception as second_error:  # noqa: BLE001
            self._report(f"failing a delayed {operation.kind}", second_error)

    def _park(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        operation.watch_keys = tuple(dict.fromkeys(keys))
        self._parking.add(operation)
        for key in operation.watch_keys:
            self.watched.setdefault(key, {})[operation] = None
        self._count(operation, 1)

    def _release(self, operation: DelayedOperation) -> None:
        assert not operation.is_completed
        operation.is_completed = True
        if operation not in self._parking:
            return
        self._parking.remove(operation)
        self._wheel.cancel(operation)
        for key in operation.watch_keys:
            watchers = self.watched[key]
            del watchers[operation]
            if not watchers:
                del self.watched[key]
        if not self.watched:
            # A new dict, because an emptied one keeps the table of its largest size.
            self.watched = {}
        self._count(operation, -1)

    def _count(self, operation: DelayedOperation, change: int) -> None:
        kind = operation.kind
        watches = change * len(operation.watch_keys)
        self._waiting_counts[kind] = self._waiting_counts.get(kind, 0) + change
        self._watch_counts[kind] = self._watch_counts.get(kind, 0) + watches
