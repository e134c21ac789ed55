"""The lag of groups during the last hour, for the console to find groups whose lag rises.

Unlike the console's other data, lag is sampled even while no page is open, because an operator who
opens the console wants to know what happened before. Only groups with lag are stored.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.runtime.slices import Slice

if TYPE_CHECKING:
    from kohort.broker.groups_seen import GroupsSeen, ReadableOf
    from kohort.broker.runtime.clock import Clock

EVERY_S: Final = 30.0
SAMPLES_MAX: Final = 120
"""Number of samples kept: one hour."""
GROUPS_MAX: Final = 1_000
"""Maximum number of stored groups, of a kilobyte each; further groups that begin to lag are not
stored."""
SAMPLED_MAX: Final = 20_000
"""Maximum number of groups per sample; the groups created or loaded first are sampled."""

SHARE: Final = 100
"""The minimum pause after a sample, as a multiple of its duration, so that sampling takes a
hundredth of a core at most."""

_THIRD: Final = 3
TREND_SAMPLES: Final = 3 * _THIRD


class LagHistory:
    def __init__(self) -> None:
        self._times_ms: deque[int] = deque(maxlen=SAMPLES_MAX)
        """Wall times of the samples."""
        self._lags: dict[str, array[int]] = {}
        """Lags by group, the newest last; fewer than `_times_ms` for groups added later."""

    async def run(
        self, seen: Callable[[], GroupsSeen | None], readable: ReadableOf, clock: Clock
    ) -> None:
        """Collect samples until cancelled. `seen` returns None until coordinators exist."""
        pause_s = EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began_ms = clock.monotonic_ms()
            if (groups := seen()) is not None:
                await self.sample(groups, readable, clock)
            pause_s = max(EVERY_S, SHARE * (clock.monotonic_ms() - began_ms) / 1_000)

    async def sample(self, groups: GroupsSeen, readable: ReadableOf, clock: Clock) -> None:
        """Collect one sample, in slices."""
        from kohort.broker.console.lag import wait_total_lag  # noqa: PLC0415 - not for a start.

        time_slice = Slice(clock, 1)
        lags: dict[str, int] = {}
        for group_id in groups.group_ids()[:SAMPLED_MAX]:
            group = groups.living_group(group_id)
            if group is not None and group.offsets.count:
                lag = await wait_total_lag(group, readable, time_slice)
                if lag is not None and (lag or group_id in self._lags):
                    lags[group_id] = lag
            await time_slice.pause()
        self.add(lags, clock.wall_ms())

    def add(self, lags: dict[str, int], at_ms: int) -> None:
        """Add a sample. `lags` has the groups with lag, and groups that are stored already even if
        their lag is 0. Groups that were removed, or had no lag for the whole hour, are dropped.
        """
        self._times_ms.append(at_ms)
        stored: dict[str, array[int]] = {}
        for group_id, lag in lags.items():
            samples = self._lags.get(group_id)
            if samples is None:
                if len(stored) >= GROUPS_MAX:
                    continue
                samples = array("q")
            samples.append(lag)
            if len(samples) > SAMPLES_MAX:
                del samples[0]
            if any(samples):
                stored[group_id] = samples
        self._lags = stored

    def last_hour(self, group_id: str) -> list[tuple[int, int]]:
        """Return the samples of a group as wall time and lag, oldest first; an empty list if the
        group had no lag in the last hour, or is not stored.
        """
        samples = self._lags.get(group_id)
        if samples is None:
            return []
        return list(zip(list(self._times_ms)[-len(samples) :], samples, strict=True))

    def trend(self, group_id: str) -> tuple[int, int] | None:
        """Return the lag `trend_ms` ago and now, if it has been rising; otherwise None."""
        samples = self._lags.get(group_id)
        if samples is None or not is_rising(samples[-TREND_SAMPLES:]):
            return None
        return samples[-TREND_SAMPLES], samples[-1]

    @property
    def trend_ms(self) -> int:
        """The duration over which `trend` compares the lag."""
        times = list(self._times_ms)[-TREND_SAMPLES:]
        return times[-1] - times[0] if times else 0


def is_rising(samples: Sequence[int]) -> bool:
    """Whether all samples of each third are above all samples of the third before it. Commits make
    a lag fluctuate; of series without a trend, one in 1,680 satisfies this condition.
    """
    if len(samples) < TREND_SAMPLES:
        return False
    first, second, third = (
        samples[start : start + _THIRD] for start in range(0, TREND_SAMPLES, _THIRD)
    )
    return max(first) < min(second) and max(second) < min(third)
