"""Selects uploads to abort when requests wait for memory that slow uploads hold.

How requests share the budget is in `memory`. A client that holds much and sends little must not
keep others waiting, and one that sends as fast as its link can must not be ended by that. So
nothing is judged while there is room for all. While a claim waits, the uploads are looked at every
`LOOK_INTERVAL_MS`, and what is asked of them rises with what they hold and with what waits:

- *A claim within its share has waited for `CLAIM_WAIT_MS`.* Uploads that hold more than their
  shares end, until there is room for it, and an eighth of the budget for those that come next:
  first the uploads that would hold the most for the longest, which is the product of the bytes held
  and the time to completion at the pace of the last `WINDOW_MS`. One that is complete within
  `CLAIM_WAIT_MS` is left alone. For one that we do not read, because it waits itself or is
  executed, the time since it last brought something stands for the time to come.
- *Any claim has waited for `CLAIM_WAIT_MS`.* The one upload that exceeds the budget ends if it
  would take longer than `FRAME_TIME_WHEN_SHORT_MS` at the pace of `OVERDRAWN_WINDOW_MS`.
- *A claim waits*: `ConnectionTimeouts` ends a frame of any size that does not come forward by an
  eighth within five seconds, the same pace over a longer time.

So a claim within its share waits for at most the interval of a look before it is seen,
`CLAIM_WAIT_MS`, and another interval: 0.6 s. Those beyond their shares wait in the order they came,
and each before them for at most as long as these rules leave it.

Pure: time comes in, and those to be ended go out.
"""

from typing import Final

from kohort.broker.network.memory import Claimant, RequestMemory

LOOK_INTERVAL_MS: Final = 100

CLAIM_WAIT_MS: Final = 400
"""How long a claim within its share waits for uploads that are nearly complete."""

WINDOW_MS: Final = 300
"""The period over which the pace is measured; shorter than `CLAIM_WAIT_MS`, so that it is known by
then."""

OVERDRAWN_WINDOW_MS: Final = 1_000
"""Long enough that a link with brief interruptions does not look slow."""

SPARE_PART: Final = 8
"""One part in this many of the budget is freed in addition to what is waited for."""

FRAME_TIME_WHEN_SHORT_MS: Final = 40_000
"""How long a frame may take, at its pace, while it delays others."""


class _Pace:
    """The observed pace of one upload."""

    __slots__ = ("_arrived_bytes", "_since_ms", "bytes_per_ms", "moved_ms", "window_ms")

    def __init__(self, window_ms: int, upload: Claimant, now_ms: int) -> None:
        self.window_ms = window_ms
        self._arrived_bytes = upload.arrived_bytes
        self._since_ms = now_ms
        self.moved_ms = now_ms
        """When data last arrived, as far as observed."""
        self.bytes_per_ms: float | None = None
        """The upload's speed over the last complete window; None before the first."""

    def look(self, upload: Claimant, now_ms: int) -> None:
        elapsed_ms = now_ms - self._since_ms
        brought_bytes = upload.arrived_bytes - self._arrived_bytes
        if brought_bytes:
            self.moved_ms = now_ms
        if elapsed_ms >= self.window_ms:
            self.bytes_per_ms = brought_bytes / elapsed_ms
            self._arrived_bytes = upload.arrived_bytes
            self._since_ms = now_ms

    def time_left_ms(self, upload: Claimant) -> float | None:
        """The time until the frame is complete; None if it was not observed for long enough."""
        if self.bytes_per_ms is None:
            return None
        return upload.left_bytes / max(self.bytes_per_ms, 0.001)


class Shortage:
    """Checks the uploads of one budget, repeatedly while a claim waits."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._paces: dict[Claimant, _Pace] = {}
        self._overdrawn: tuple[Claimant, _Pace] | None = None
        self._waiting_since_ms: dict[Claimant, int] = {}
        self._ended: set[Claimant] = set()
        """Uploads that were told to end and are not closed yet."""

    @property
    def lasts(self) -> bool:
        """Whether any claim was waiting at the last look."""
        return bool(self._waiting_since_ms)

    def look(self, now_ms: int) -> list[Claimant]:
        """Return the uploads to abort now."""
        memory = self._memory
        memory.admit()
        self._note_waiting(now_ms)
        if not self._waiting_since_ms:
            self._paces.clear()
            self._overdrawn = None
            self._ended.clear()
            return []
        self._note_paces(now_ms)
        victims = self._end_for_shares(now_ms)
        overdrawn = self._slow_overdrawn(now_ms)
        if overdrawn is not None and overdrawn not in victims:
            victims.append(overdrawn)
        self._ended.update(victims)
        return victims

    def _note_waiting(self, now_ms: int) -> None:
        before = self._waiting_since_ms
        self._waiting_since_ms = {
            claimant: before.get(claimant, now_ms) for claimant, _ in self._memory.waiting()
        }

    def _note_paces(self, now_ms: int) -> None:
        before, self._paces = self._paces, {}
        for upload in self._memory.uploads():
            pace = before.get(upload)
            if pace is None:
                pace = _Pace(WINDOW_MS, upload, now_ms)
            else:
                pace.look(upload, now_ms)
            self._paces[upload] = pace
        self._ended.intersection_update(self._paces)

    def _end_for_shares(self, now_ms: int) -> list[Claimant]:
        """Make room for claims within their shares that have waited long enough."""
        memory = self._memory
        missing_bytes = sum(
            byte_count
            for claimant, byte_count in memory.waiting()
            if now_ms - self._waiting_since_ms[claimant] >= CLAIM_WAIT_MS
            and memory.is_within_share(claimant, byte_count)
        )
        if not missing_bytes:
            return []
        missing_bytes += memory.counted_bytes - memory.budget_bytes
        # Includes room for the next claims, or each would find the budget full and wait as long.
        missing_bytes += memory.budget_bytes // SPARE_PART
        missing_bytes -= sum(upload.held_bytes for upload in self._ended)
        found: list[tuple[float, Claimant]] = []
        for upload, pace in self._paces.items():
            time_ms = self._time_to_come_ms(upload, pace, now_ms)
            if (
                time_ms > CLAIM_WAIT_MS
                and upload not in self._ended
                # The upload that exceeds the budget is not in the way of others.
                and upload is not memory.overdrawn
                and not memory.is_within_share(upload, 0)
            ):
                found.append((upload.held_bytes * time_ms, upload))
        found.sort(key=lambda one: one[0], reverse=True)
        victims = []
        for _, upload in found:
            if missing_bytes <= 0:
                break
            missing_bytes -= upload.held_bytes
            victims.append(upload)
        return victims

    def _time_to_come_ms(self, upload: Claimant, pace: _Pace, now_ms: int) -> float:
        """How long it will hold its memory; 0 if unknown."""
        if upload.left_bytes == 0 or self._memory.is_waiting(upload):
            return now_ms - pace.moved_ms
        return pace.time_left_ms(upload) or 0

    def _slow_overdrawn(self, now_ms: int) -> Claimant | None:
        """Return the upload that exceeds the budget, if it delays others for too long."""
        overdrawn = self._memory.overdrawn
        if overdrawn is None or overdrawn in self._ended:
            return None
        if self._overdrawn is None or self._overdrawn[0] is not overdrawn:
            self._overdrawn = (overdrawn, _Pace(OVERDRAWN_WINDOW_MS, overdrawn, now_ms))
            return None
        pace = self._overdrawn[1]
        pace.look(overdrawn, now_ms)
        if now_ms - min(self._waiting_since_ms.values()) < CLAIM_WAIT_MS:
            return None
        if overdrawn.left_bytes == 0:
            # Executed, or parked: its memory is unavailable for as long as that lasts.
            is_slow = now_ms - pace.moved_ms >= FRAME_TIME_WHEN_SHORT_MS
        else:
            is_slow = (pace.time_left_ms(overdrawn) or 0) > FRAME_TIME_WHEN_SHORT_MS
        return overdrawn if is_slow else None
