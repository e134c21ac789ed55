"""Memory accounting: bytes of requests being received, and of responses being sent.

Both limits are for the broker as a whole. A request's bytes count from when memory is allocated for
them, never from when they are announced, until the request is answered.

How requests share the budget
    A request up to `UNASKED_ROOM_BYTES` is never held up, and counts. Larger ones ask for room as
    they arrive, and together hold at most what the small ones leave, or half of the budget if that
    is more; but one connection at a time may exceed this, so that frames that wait for each other's
    memory cannot wait for ever.

    Of n connections that receive large requests, from a owners of addresses, of which m have this
    one's, each has a share: the budget / (2 min(n, a m)). So half of the budget is divided by
    connections and half by owners, and to shrink a client's share takes many connections *and* many
    owners: addresses of IPv4, /64 networks of IPv6, where a host has 2**64 addresses.
    Shares add up to no more than the budget. Hence, when a claim within its share finds no room,
    another holds more than its own; `shortage` ends such a one after half a second if it is slow.
    Claims beyond a share are granted in the order they came, and only while a quarter of the budget
    stays free, so that those within theirs find room at once unless very many come together.

    At the default of 256 MiB a request of 200 kB is within its connection's share beside 640 others
    that upload, wherever they come from; a frame of 100 MiB is beyond it as soon as there is one.

There is no time and no task here: judgements that need time are in `shortage`.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Final, Protocol

UNASKED_ROOM_BYTES: Final = 64 * 1024
"""A frame up to this size gets its memory however much others hold, so that large requests do not
block small ones."""

_RESERVE: Final = 4
"""One part in this many is reserved for claims within their shares."""


def _nothing() -> None:
    """Do nothing: the default callback."""


class RequestMemory:
    """The broker's memory budget for requests being received or executed."""

    __slots__ = (
        "_by_owner",
        "_large",
        "_limit_bytes",
        "_most_bytes",
        "_on_shortage",
        "_waiting",
        "large_bytes",
        "overdrawn",
        "used_bytes",
    )

    def __init__(self, limit_bytes: int, on_shortage: Callable[[], None] = _nothing) -> None:
        """A negative limit means none. `on_shortage` is called when a claim has to wait while no
        other does.
        """
        self._limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self._on_shortage = on_shortage
        self._large: dict[Claimant, None] = {}
        """Claimants with a large request, from their first claim until it is answered."""
        self._by_owner: dict[str, int] = {}
        """The number of these per owner of a peer's address."""
        self._waiting: dict[Claimant, int] = {}
        self.overdrawn: Claimant | None = None
        """The claimant that continues receiving although the budget is exhausted."""
        self._most_bytes = 0
        self.large_bytes = 0
        """What those with large requests hold."""
        self.used_bytes = 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def budget_bytes(self) -> int:
        """What large requests may hold together."""
        return max(self._limit_bytes - self.used_bytes + self.large_bytes, self._limit_bytes // 2)

    @property
    def counted_bytes(self) -> int:
        """What counts against the budget: all except the one request that may exceed it."""
        beyond_bytes = 0 if self.overdrawn is None else self.overdrawn.held_bytes
        return self.large_bytes - beyond_bytes

    def take_most_bytes(self) -> int:
        """Return the maximum usage since the last call."""
        most_bytes, self._most_bytes = self._most_bytes, self.used_bytes
        return most_bytes

    def uploads(self) -> "Iterable[Claimant]":
        """Claimants that receive a large request, wait for memory for one, or have one executed."""
        return self._large

    def waiting(self) -> "Iterable[tuple[Claimant, int]]":
        """Waiting claimants, longest first, and how much each waits for."""
        return self._waiting.items()

    def is_waiting(self, claimant: "Claimant") -> bool:
        return claimant in self._waiting

    def share_bytes(self, claimant: "Claimant") -> int:
        """The share of one of `uploads`."""
        of_owner = len(self._by_owner) * self._by_owner[claimant.owner]
        return self.budget_bytes // (2 * min(len(self._large), of_owner))

    def is_within_share(self, claimant: "Claimant", byte_count: int) -> bool:
        """Whether the claimant would be within its share with `byte_count` more."""
        return claimant.held_bytes + byte_count <= self.share_bytes(claimant)

    def may_claim(self, claimant: "Claimant", byte_count: int) -> bool:
        """Grant `byte_count`, or record that `claimant` waits for it."""
        if not claimant.is_large:
            self._enlist(claimant)
        if self.is_within_share(claimant, byte_count):
            is_room = self._is_room(byte_count)
        else:
            is_room = not self._waiting and self._is_ample_room(byte_count)
        if is_room or self._may_overdraw(claimant):
            self._grant(claimant, byte_count)
            return True
        self._waiting[claimant] = byte_count
        if len(self._waiting) == 1:
            self._on_shortage()
        return False

    def release(self, claimant: "Claimant", byte_count: int) -> None:
        """Record that `claimant` holds `byte_count` less than before."""
        self.used_bytes -= byte_count
        if not claimant.is_large:
            return
        self.large_bytes -= byte_count
        if claimant.held_bytes <= UNASKED_ROOM_BYTES and claimant not in self._waiting:
            self._delist(claimant)
        if self._waiting:
            self.admit()

    def forget(self, claimant: "Claimant") -> None:
        """Remove a closed claimant, and everything that it held."""
        self._waiting.pop(claimant, None)
        if claimant.is_large:
            self._delist(claimant)
        self.used_bytes -= claimant.held_bytes
        claimant.held_bytes = 0
        if self._waiting:
            self.admit()

    def admit(self) -> None:
        """Grant waiting claims: within their shares all for which there is memory, and then the
        others, first come first served.

        Called when a large request is done. Memory of small requests is noticed at the next look.
        """
        # A granted claimant may give some of it back, which calls this method again.
        for claimant, byte_count in list(self._waiting.items()):
            if (
                claimant in self._waiting
                and self._is_room(byte_count)
                and self.is_within_share(claimant, byte_count)
            ):
                self._let_go_on(claimant, byte_count)
        while self._waiting:
            claimant, byte_count = next(iter(self._waiting.items()))
            if not self._is_ample_room(byte_count) and not self._may_overdraw(claimant):
                return
            self._let_go_on(claimant, byte_count)

    def _let_go_on(self, claimant: "Claimant", byte_count: int) -> None:
        del self._waiting[claimant]
        self._grant(claimant, byte_count)
        claimant.granted()

    def _grant(self, claimant: "Claimant", byte_count: int) -> None:
        claimant.held_bytes += byte_count
        self.large_bytes += byte_count
        self.used_bytes += byte_count
        self._most_bytes = max(self._most_bytes, self.used_bytes)

    def _is_room(self, byte_count: int) -> bool:
        return self.counted_bytes + byte_count <= self.budget_bytes

    def _is_ample_room(self, byte_count: int) -> bool:
        budget_bytes = self.budget_bytes
        return self.counted_bytes + byte_count <= budget_bytes - budget_bytes // _RESERVE

    def _may_overdraw(self, claimant: "Claimant") -> bool:
        before = self.overdrawn
        # One that has its complete frame will claim no more, and may be parked for long.
        if before is None or (before.left_bytes == 0 and self.large_bytes <= self.budget_bytes):
            self.overdrawn = claimant
        return self.overdrawn is claimant

    def _enlist(self, claimant: "Claimant") -> None:
        claimant.is_large = True
        self._large[claimant] = None
        self._by_owner[claimant.owner] = self._by_owner.get(claimant.owner, 0) + 1
        self.large_bytes += claimant.held_bytes

    def _delist(self, claimant: "Claimant") -> None:
        claimant.is_large = False
        del self._large[claimant]
        left = self._by_owner[claimant.owner] - 1
        if left:
            self._by_owner[claimant.owner] = left
        else:
            del self._by_owner[claimant.owner]
        self.large_bytes -= claimant.held_bytes
        if self.overdrawn is claimant:
            self.overdrawn = None


class Claimant:
    """One connection's part of the budget."""

    __slots__ = (
        "_memory",
        "_on_evicted",
        "_on_granted",
        "arrived_bytes",
        "held_bytes",
        "is_large",
        "left_bytes",
        "owner",
    )

    def __init__(
        self,
        memory: RequestMemory,
        on_granted: Callable[[], None],
        on_evicted: Callable[[], None] = _nothing,
    ) -> None:
        self._memory = memory
        self._on_granted = on_granted
        self._on_evicted = on_evicted
        self.owner = ""
        """Owner of the peer's address; not to be changed after the first `ask`."""
        self.held_bytes = 0
        self.is_large = False
        """Whether it counts among the uploads; set by the budget."""
        self.arrived_bytes = 0
        """Total bytes of frames that did not arrive in one piece."""
        self.left_bytes = 0
        """Bytes still missing of the current frame."""

    def take(self, byte_count: int) -> None:
        """Count bytes that have arrived already."""
        self.held_bytes += byte_count
        self._memory.used_bytes += byte_count
        if self.is_large:
            self._memory.large_bytes += byte_count

    def ask(self, byte_count: int) -> bool:
        """Claim memory for bytes to come. If False, `on_granted` is called when it is available."""
        return self._memory.may_claim(self, byte_count)

    def give_back(self, byte_count: int) -> None:
        self.held_bytes -= byte_count
        self._memory.release(self, byte_count)

    def close(self) -> None:
        """Release everything, because the connection has closed."""
        self._on_granted = self._on_evicted = _nothing
        self._memory.forget(self)

    def granted(self) -> None:
        """Called by the budget when the last claim has been granted, and counted."""
        self._on_granted()

    def evict(self) -> None:
        """Close the connection: it holds memory that others need, and is slow."""
        self._on_evicted()


class SlowReader(Protocol):
    """A connection that receives its responses more slowly than it requests them."""

    def close_slow_reader(self) -> None: ...


class UnsentBytes:
    """Responses that wait in the transports of slow clients, the longest-waiting first."""

    __slots__ = ("_limit_bytes", "_readers", "total_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._readers: dict[SlowReader, int] = {}
        self.total_bytes = 0

    def add(self, reader: SlowReader, byte_count: int) -> None:
        """Record that `reader` lags by `byte_count`; close others until there is room for it."""
        self.remove(reader)
        self._readers[reader] = byte_count
        self.total_bytes += byte_count
        self._close_slowest()

    def note(self, reader: SlowReader, byte_count: int) -> None:
        """Update how much `reader` lags. It keeps its place in the order while it makes no
        progress.
        """
        before_bytes = self._readers.get(reader, 0)
        if byte_count < before_bytes or not before_bytes:
            self.remove(reader)
        else:
            self.total_bytes -= before_bytes
        if byte_count:
            self._readers[reader] = byte_count
            self.total_bytes += byte_count
            self._close_slowest()

    def _close_slowest(self) -> None:
        while self.total_bytes > self._limit_bytes:
            slowest = next(iter(self._readers))
            self.remove(slowest)
            slowest.close_slow_reader()

    def remove(self, reader: SlowReader) -> None:
        """Remove a reader that has caught up or closed."""
        self.total_bytes -= self._readers.pop(reader, 0)
