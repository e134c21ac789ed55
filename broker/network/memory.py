"""Who holds how much: bytes of requests on their way in, and of responses on their way out.

Both bounds are for the broker as a whole. A request's bytes count from when room is made for them,
never from when they are announced, until the request is answered. One connection at a time may
exceed the bound, so that frames that wait for each other's memory cannot wait for ever.
"""

import sys
from collections.abc import Callable
from typing import Protocol


class RequestMemory:
    """The broker's budget for requests that are received or waited for."""

    __slots__ = ("_limit_bytes", "_most_bytes", "_overdrawn", "_waiting", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """A negative limit is none."""
        self._limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self._waiting: dict[Claimant, int] = {}
        self._overdrawn: Claimant | None = None
        """The one that goes on receiving although the budget is spent."""
        self._most_bytes = 0
        self.used_bytes = 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take_most_bytes(self) -> int:
        """The most that was granted at a time since the last call."""
        most_bytes, self._most_bytes = self._most_bytes, self.used_bytes
        return most_bytes

    def may_claim(self, claimant: "Claimant", byte_count: int) -> bool:
        """Claim `byte_count`, or note that `claimant` waits for it."""
        is_room = self.used_bytes + byte_count <= self._limit_bytes and not self._waiting
        if is_room or self._may_overdraw(claimant):
            self._grant(byte_count)
            return True
        self._waiting[claimant] = byte_count
        return False

    def release(self, claimant: "Claimant", byte_count: int) -> None:
        self.used_bytes -= byte_count
        if self._overdrawn is claimant and claimant.held_bytes == 0:
            self._overdrawn = None
        if self._waiting:
            self._admit()

    def forget(self, claimant: "Claimant") -> None:
        self._waiting.pop(claimant, None)
        if self._overdrawn is claimant:
            self._overdrawn = None
        self._admit()

    def _grant(self, byte_count: int) -> None:
        self.used_bytes += byte_count
        self._most_bytes = max(self._most_bytes, self.used_bytes)

    def _may_overdraw(self, claimant: "Claimant") -> bool:
        if self._overdrawn is None:
            self._overdrawn = claimant
        return self._overdrawn is claimant

    def _admit(self) -> None:
        """Let those go on that wait, first come first served."""
        while self._waiting:
            claimant, byte_count = next(iter(self._waiting.items()))
            is_room = self.used_bytes + byte_count <= self._limit_bytes
            if not is_room and not self._may_overdraw(claimant):
                return
            del self._waiting[claimant]
            self._grant(byte_count)
            claimant.granted(byte_count)


class Claimant:
    """One connection's part of the budget."""

    __slots__ = ("_memory", "_on_granted", "held_bytes")

    def __init__(self, memory: RequestMemory, on_granted: Callable[[], None]) -> None:
        self._memory = memory
        self._on_granted = on_granted
        self.held_bytes = 0

    def take(self, byte_count: int) -> None:
        """Count bytes that are here already."""
        self.held_bytes += byte_count
        self._memory.used_bytes += byte_count

    def ask(self, byte_count: int) -> bool:
        """Claim room for bytes to come. If False, `on_granted` is called when there is room."""
        if not self._memory.may_claim(self, byte_count):
            return False
        self.held_bytes += byte_count
        return True

    def give_back(self, byte_count: int) -> None:
        self.held_bytes -= byte_count
        self._memory.release(self, byte_count)

    def close(self) -> None:
        """The connection is gone, and all that it held."""
        held_bytes, self.held_bytes = self.held_bytes, 0
        self._memory.used_bytes -= held_bytes
        self._memory.forget(self)
        self._on_granted = _nothing

    def granted(self, byte_count: int) -> None:
        """Called by the budget: what was asked for last is there, and counted."""
        self.held_bytes += byte_count
        self._on_granted()


def _nothing() -> None:
    """Nobody waits any more."""


class SlowReader(Protocol):
    """A connection that does not take its responses as fast as it asks for them."""

    def close_slow_reader(self) -> None: ...


class UnsentBytes:
    """Responses that wait in the transports of slow readers, the longest-waiting first."""

    __slots__ = ("_limit_bytes", "_readers", "total_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._readers: dict[SlowReader, int] = {}
        self.total_bytes = 0

    def add(self, reader: SlowReader, byte_count: int) -> None:
        """`reader` has fallen behind by so much; close others until there is room for it."""
        self.remove(reader)
        self._readers[reader] = byte_count
        self.total_bytes += byte_count
        while self.total_bytes > self._limit_bytes:
            slowest = next(iter(self._readers))
            self.remove(slowest)
            slowest.close_slow_reader()

    def remove(self, reader: SlowReader) -> None:
        """`reader` has caught up, or is gone."""
        self.total_bytes -= self._readers.pop(reader, 0)
