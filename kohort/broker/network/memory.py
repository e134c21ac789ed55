"""Memory accounting: bytes of requests being received or executed, and of responses being sent.

Each of the two has one limit for the whole broker. A request's bytes count from the allocation of
memory for them, not from the client's announcement, until the request is answered.

A request up to `UNCHECKED_BYTES` is never delayed, but counts. A larger request reserves memory as
it arrives:

- Large requests have their own budget: the memory that small requests do not use, but at least half
  of the limit.
- Half of this budget is divided equally among the requests, and half among the address blocks of
  their clients (an IPv4 address, or a /64 network of IPv6). A request is within its limit if it
  holds at most a request's part, or its block at most a block's part. To shrink both parts, an
  attacker needs many address blocks. All requests within their limits fit into the budget.
- A request beyond its limit gets memory only while a quarter of the budget is free. So a request
  within its limit usually finds free memory at once.
- A reservation that does not fit waits. One at a time, the longest-waiting reservation may exceed
  the budget, so that large requests are not starved, and frames that wait for each other's memory
  cannot deadlock.
- If a reservation waits for longer than `RESERVATION_WAIT_MS`, `SlowUploadPolicy` closes the
  slowest uploads.

No clocks and no tasks: time is passed in.
"""

import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Final, Protocol

UNCHECKED_BYTES: Final = 64 * 1024
"""Requests up to this size never wait for memory, so large requests do not block small ones."""

RESERVATION_WAIT_MS: Final = 400
"""Time for which a reservation waits before `SlowUploadPolicy` closes slow uploads."""

POLICY_INTERVAL_MS: Final = 100
"""How often `SlowUploadPolicy` runs while a reservation waits."""

UPLOAD_TIME_MAX_MS: Final = 40_000
"""Time to completion above which an upload is closed if any other request waits for memory."""

_FREE_DIVISOR: Final = 4
"""The budget divided by this is reserved for requests within their limits."""

_SPARE_DIVISOR: Final = 8
"""The budget divided by this is freed in addition to the requested memory, so that the next
reservations need not wait as long."""


def _nothing() -> None:
    """Do nothing: the default callback."""


class RequestMemoryBudget:
    """The memory for requests of all connections, and the reservations for large requests."""

    __slots__ = (
        "_bytes_by_block",
        "_limit_bytes",
        "_on_shortage",
        "_peak_bytes",
        "large_bytes",
        "overdrawn",
        "uploads",
        "used_bytes",
        "waiting",
    )

    def __init__(self, limit_bytes: int, on_shortage: Callable[[], None] = _nothing) -> None:
        """A negative `limit_bytes` means no limit. `on_shortage` is called when a reservation has
        to wait and no other is waiting.
        """
        self._limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self._on_shortage = on_shortage
        self._bytes_by_block: dict[str, int] = {}
        self._peak_bytes = 0
        self.uploads: dict[MemoryReservation, None] = {}
        """Reservations of large requests: from their first `reserve` until they hold no more than
        `UNCHECKED_BYTES`. Modified only here."""
        self.waiting: dict[MemoryReservation, int] = {}
        """Waiting reservations, oldest first, and the bytes they wait for. Modified only here."""
        self.overdrawn: MemoryReservation | None = None
        """The reservation that may exceed the budget."""
        self.large_bytes = 0
        self.used_bytes = 0

    @property
    def budget_bytes(self) -> int:
        """Bytes that large requests may hold together."""
        return max(self._limit_bytes - self.used_bytes + self.large_bytes, self._limit_bytes // 2)

    @property
    def block_limit_bytes(self) -> int:
        """Bytes that the large requests of one address block may hold."""
        return self.budget_bytes // (2 * max(len(self._bytes_by_block), 1))

    @property
    def request_limit_bytes(self) -> int:
        """Bytes that a large request may hold, even if the requests of its address block hold more
        than `block_limit_bytes`.
        """
        return self.budget_bytes // (2 * max(len(self.uploads), 1))

    def take_peak_bytes(self) -> int:
        """Return the highest usage since the last call."""
        peak_bytes, self._peak_bytes = self._peak_bytes, self.used_bytes
        return peak_bytes

    def is_within_limit(self, reservation: "MemoryReservation", byte_count: int = 0) -> bool:
        """Whether an upload is within its limit with `byte_count` more bytes."""
        block_bytes = self._bytes_by_block.get(reservation.address_block, 0)
        return (
            reservation.held_bytes + byte_count <= self.request_limit_bytes
            or block_bytes + byte_count <= self.block_limit_bytes
        )

    def missing_bytes(self, byte_count: int, *, is_within_limit: bool) -> int:
        """Return the bytes that a reservation of `byte_count` lacks; 0 or less if it fits."""
        budget_bytes = self.budget_bytes
        if not is_within_limit:
            budget_bytes -= budget_bytes // _FREE_DIVISOR
        overdrawn_bytes = 0 if self.overdrawn is None else self.overdrawn.held_bytes
        return self.large_bytes - overdrawn_bytes + byte_count - budget_bytes

    def reserve(self, reservation: "MemoryReservation", byte_count: int) -> bool:
        """Grant a reservation, or make it wait. Returns whether it is granted."""
        if not reservation.is_large:
            reservation.is_large = True
            self.uploads[reservation] = None
            self.count_large(reservation.address_block, reservation.held_bytes)
        if self._fits(reservation, byte_count) or self._try_overdraw(reservation):
            self._grant(reservation, byte_count)
            return True
        self.waiting[reservation] = byte_count
        if len(self.waiting) == 1:
            self._on_shortage()
        return False

    def count_large(self, block: str, byte_count: int) -> None:
        """Add to the bytes of all large requests, and to those of an address block."""
        self.large_bytes += byte_count
        block_bytes = self._bytes_by_block.get(block, 0) + byte_count
        if block_bytes:
            self._bytes_by_block[block] = block_bytes
        else:
            self._bytes_by_block.pop(block, None)

    def on_released(self, reservation: "MemoryReservation", byte_count: int) -> None:
        """Subtract the bytes released by a large request, and grant waiting reservations."""
        self.count_large(reservation.address_block, -byte_count)
        if reservation.held_bytes <= UNCHECKED_BYTES and reservation not in self.waiting:
            self._remove_upload(reservation)
        if self.waiting:
            self.grant_waiting()

    def remove(self, reservation: "MemoryReservation") -> None:
        """Release all memory of a reservation; if it is waiting, it stops waiting."""
        self.waiting.pop(reservation, None)
        if reservation.is_large:
            self._remove_upload(reservation)
        self.used_bytes -= reservation.held_bytes
        reservation.held_bytes = 0
        if self.waiting:
            self.grant_waiting()

    def grant_waiting(self) -> None:
        """Grant all waiting reservations that fit; then let the longest-waiting one exceed the
        budget, unless another one already may.
        """
        # `on_granted` may release memory, which calls this method again.
        for reservation, byte_count in list(self.waiting.items()):
            if reservation in self.waiting and self._fits(reservation, byte_count):
                self._grant_waiting(reservation, byte_count)
        if self.waiting:
            reservation, byte_count = next(iter(self.waiting.items()))
            if self._try_overdraw(reservation):
                self._grant_waiting(reservation, byte_count)

    def _grant_waiting(self, reservation: "MemoryReservation", byte_count: int) -> None:
        del self.waiting[reservation]
        self._grant(reservation, byte_count)
        reservation.on_granted()

    def _grant(self, reservation: "MemoryReservation", byte_count: int) -> None:
        reservation.held_bytes += byte_count
        self.used_bytes += byte_count
        self.count_large(reservation.address_block, byte_count)
        self._peak_bytes = max(self._peak_bytes, self.used_bytes)

    def _fits(self, reservation: "MemoryReservation", byte_count: int) -> bool:
        is_within_limit = self.is_within_limit(reservation, byte_count)
        return self.missing_bytes(byte_count, is_within_limit=is_within_limit) <= 0

    def _try_overdraw(self, reservation: "MemoryReservation") -> bool:
        """Let one reservation at a time exceed the budget; return whether `reservation` may."""
        current = self.overdrawn
        # A complete request may be parked for minutes. Once usage is within the budget again,
        # another reservation may exceed it.
        if current is None or (current.left_bytes == 0 and self.large_bytes <= self.budget_bytes):
            self.overdrawn = reservation
        return self.overdrawn is reservation

    def _remove_upload(self, reservation: "MemoryReservation") -> None:
        reservation.is_large = False
        del self.uploads[reservation]
        self.count_large(reservation.address_block, -reservation.held_bytes)
        if self.overdrawn is reservation:
            self.overdrawn = None


class MemoryReservation:
    """The memory of one connection's requests: `add` and `reserve` count it, `release` frees it."""

    __slots__ = (
        "_budget",
        "address_block",
        "arrived_bytes",
        "evict",
        "held_bytes",
        "is_large",
        "left_bytes",
        "on_granted",
    )

    def __init__(
        self,
        budget: RequestMemoryBudget,
        on_granted: Callable[[], None],
        evict: Callable[[], None] = _nothing,
    ) -> None:
        self._budget = budget
        self.on_granted = on_granted
        """Called when a reservation that had to wait is granted and counted."""
        self.evict = evict
        """Closes the connection, because others need its memory."""
        self.address_block = ""
        """The client's address block; must not change after the first `reserve`."""
        self.held_bytes = 0
        self.is_large = False
        """Whether this is one of the budget's `uploads`."""
        self.arrived_bytes = 0
        """Total bytes of frames that did not arrive in one read."""
        self.left_bytes = 0
        """Bytes of the current frame that have not arrived yet."""

    def add(self, byte_count: int) -> None:
        """Count bytes that are allocated already, without waiting."""
        self.held_bytes += byte_count
        self._budget.used_bytes += byte_count
        if self.is_large:
            self._budget.count_large(self.address_block, byte_count)

    def reserve(self, byte_count: int) -> bool:
        """Reserve memory for bytes to come. If False, `on_granted` is called later."""
        return self._budget.reserve(self, byte_count)

    def release(self, byte_count: int) -> None:
        self.held_bytes -= byte_count
        self._budget.used_bytes -= byte_count
        if self.is_large:
            self._budget.on_released(self, byte_count)

    def close(self) -> None:
        """Release everything, because the connection has closed."""
        self.on_granted = self.evict = _nothing
        self._budget.remove(self)


class SlowUploadPolicy:
    """Selects the uploads to close while others wait for memory.

    The slowest uploads are those that need the most time to completion at their recent rate. For a
    request that is being executed, or waits for memory itself, the time since its last bytes counts
    instead.

    - For a waiting reservation within its limit, uploads above their limits that need longer than
      `RESERVATION_WAIT_MS` are closed, so it waits `RESERVATION_WAIT_MS` and two intervals at most.
    - For a reservation above its limit, only uploads that need longer than `UPLOAD_TIME_MAX_MS`.

    The upload that exceeds the budget is closed if it takes longer than `UPLOAD_TIME_MAX_MS`. Other
    uploads within their limits are never closed: a short interruption makes any of them look slow.
    """

    def __init__(self, budget: RequestMemoryBudget) -> None:
        self._budget = budget
        self._rates: dict[MemoryReservation, _UploadRate] = {}
        self._waiting_since_ms: dict[MemoryReservation, int] = {}

    @property
    def is_active(self) -> bool:
        """Whether a reservation was waiting when `run` was last called."""
        return bool(self._waiting_since_ms)

    def run(self, now_ms: int) -> list[MemoryReservation]:
        """Grant the reservations that fit; return the uploads to close for reservations that do not
        fit.

        To be called every `POLICY_INTERVAL_MS` while a reservation waits.
        """
        budget = self._budget
        budget.grant_waiting()
        self._waiting_since_ms = {
            reservation: self._waiting_since_ms.get(reservation, now_ms)
            for reservation in budget.waiting
        }
        if not self._waiting_since_ms:
            self._rates.clear()
            return []
        self._measure(now_ms)
        overdue = [
            reservation
            for reservation, since_ms in self._waiting_since_ms.items()
            if now_ms - since_ms >= RESERVATION_WAIT_MS
        ]
        return self._select(overdue, now_ms) if overdue else []

    def _measure(self, now_ms: int) -> None:
        rates, self._rates = self._rates, {}
        for upload in self._budget.uploads:
            rate = rates.get(upload) or _UploadRate(upload, now_ms)
            rate.measure(upload, now_ms)
            self._rates[upload] = rate

    def _select(self, overdue: list[MemoryReservation], now_ms: int) -> list[MemoryReservation]:
        budget = self._budget
        within = [
            budget.waiting[reservation]
            for reservation in overdue
            if budget.is_within_limit(reservation, budget.waiting[reservation])
        ]
        smallest = min(within or [budget.waiting[reservation] for reservation in overdue])
        missing_bytes = budget.missing_bytes(smallest, is_within_limit=bool(within))
        missing_bytes += budget.budget_bytes // _SPARE_DIVISOR
        slow: list[tuple[float, MemoryReservation]] = []
        victims = []
        time_max_ms = RESERVATION_WAIT_MS if within else UPLOAD_TIME_MAX_MS
        for upload, rate in self._rates.items():
            time_ms = self._remaining_ms(upload, rate, now_ms)
            if upload is budget.overdrawn:
                # Its memory is not part of the budget: closing it lets another exceed the budget.
                if time_ms > UPLOAD_TIME_MAX_MS:
                    victims.append(upload)
            elif time_ms > time_max_ms and not budget.is_within_limit(upload):
                slow.append((time_ms, upload))
        slow.sort(key=itemgetter(0), reverse=True)
        for _, upload in slow:
            if missing_bytes <= 0:
                break
            missing_bytes -= upload.held_bytes
            victims.append(upload)
        return victims

    def _remaining_ms(self, upload: MemoryReservation, rate: "_UploadRate", now_ms: int) -> float:
        """Return the estimated time to completion, 0 if unknown. If an upload is complete, or waits
        for memory, return the time since its last bytes arrived instead.
        """
        if upload.left_bytes == 0 or upload in self._budget.waiting:
            return now_ms - rate.last_arrival_ms
        if rate.bytes_per_ms is None:
            return 0
        return upload.left_bytes / max(rate.bytes_per_ms, 0.001)


class _UploadRate:
    """The recent rate of one upload."""

    __slots__ = ("_arrived_bytes", "_since_ms", "bytes_per_ms", "last_arrival_ms")

    def __init__(self, upload: MemoryReservation, now_ms: int) -> None:
        self._arrived_bytes = upload.arrived_bytes
        self._since_ms = now_ms
        self.last_arrival_ms = now_ms
        """When data last arrived, accurate to `POLICY_INTERVAL_MS`."""
        self.bytes_per_ms: float | None = None
        """The rate over the last `RESERVATION_WAIT_MS`; None before the first measurement."""

    def measure(self, upload: MemoryReservation, now_ms: int) -> None:
        elapsed_ms = now_ms - self._since_ms
        new_bytes = upload.arrived_bytes - self._arrived_bytes
        if new_bytes:
            self.last_arrival_ms = now_ms
        if elapsed_ms >= RESERVATION_WAIT_MS:
            self.bytes_per_ms = new_bytes / elapsed_ms
            self._arrived_bytes = upload.arrived_bytes
            self._since_ms = now_ms


class SlowReader(Protocol):
    """A connection that receives its responses more slowly than it requests them."""

    def close_slow_reader(self) -> None: ...


class UnsentBytes:
    """Unsent responses in the transports of slow clients, the longest-waiting first."""

    __slots__ = ("_limit_bytes", "_readers", "total_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._readers: dict[SlowReader, int] = {}
        self.total_bytes = 0

    def add(self, reader: SlowReader, byte_count: int) -> None:
        """Record a reader with `byte_count` unsent bytes. If the total exceeds the limit, close
        the readers that have made no progress for the longest time.
        """
        self.remove(reader)
        self._readers[reader] = byte_count
        self.total_bytes += byte_count
        self._close_slowest()

    def update(self, reader: SlowReader, byte_count: int) -> None:
        """Update a reader's unsent bytes. If they have decreased, the reader is not stuck, so it
        becomes the last one to be closed.
        """
        if not byte_count and reader not in self._readers:
            return  # Nearly all readers.
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
