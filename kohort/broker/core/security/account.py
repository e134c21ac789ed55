"""Clients' quota accounts: measure recent use, charge requests, and compute throttle times
(KIP-124, KIP-219).

The arithmetic is Kafka's, to the millisecond. A sample covers one window; the first use after its
end begins the next one. The rate is the sum of the samples divided by the time since the oldest
began. If this time is shorter than all windows but one, the missing full windows are added to it.
"""

from collections.abc import Sequence, Sized
from typing import Final

WINDOWS: Final = 11
"""The default of `quota.window.num`."""
WINDOW_MS: Final = 1_000
"""The default of `quota.window.size.seconds`."""
THROTTLE_MAX_MS: Final = (1 << 31) - 1
"""The maximum throttle time in a response."""

_START, _LAST, _SUM = range(3)


class Rate:
    """The recent use charged to one account. Times are in monotonic milliseconds."""

    __slots__ = ("_samples", "_windows", "least_ms", "total", "window_ms")

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self.window_ms = window_ms
        self.least_ms = (windows - 1) * window_ms
        """The shortest time over which a rate is computed, even if the oldest sample is younger."""
        self._samples: list[list[int]] = []
        """(start, time of the last use, sum) of each sample, oldest first; at most windows + 1."""
        self.total = 0

    @property
    def sample_end_ms(self) -> int:
        """When `record` next begins a new sample; valid only after a first call of `record`."""
        return self._samples[-1][_START] + self.window_ms

    def record(self, amount: int, now_ms: int) -> None:
        """Add an amount that was used now; a negative amount reverts the previous call."""
        samples = self._samples
        if not samples or now_ms - samples[-1][_START] >= self.window_ms:
            self._forget(now_ms)
            samples.append([now_ms, now_ms, 0])
        current = samples[-1]
        current[_LAST] = now_ms
        current[_SUM] += amount
        self.total += amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the rate is at most `limit` per second; 0 if it already is."""
        self._forget(now_ms)
        samples = self._samples
        if not samples:
            return 0
        elapsed_ms = now_ms - samples[0][_START]
        missing = self._windows - 1 - elapsed_ms // self.window_ms
        over_ms = elapsed_ms + max(0, missing) * self.window_ms
        # (rate - limit) / limit * window, where the rate is total / window.
        return max(0, round(min(self.total * 1_000 / limit - over_ms, THROTTLE_MAX_MS)))

    def _forget(self, now_ms: int) -> None:
        kept_ms = self._windows * self.window_ms
        samples = self._samples
        while samples and now_ms - samples[0][_LAST] >= kept_ms:
            self.total -= samples.pop(0)[_SUM]


PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
SHARE_FETCH_KEY: Final = 78

MICROSECONDS_OF_A_PERCENT: Final = 10_000

_NEVER: Final = -1
"""Less than any monotonic time."""
_AT_ONCE_MAX: Final = (1 << 31) - 1
"""Limit of `at_once`: the largest `max_bytes` that a Fetch can have."""
_BUDGET_MAX: Final = 1 << 62
"""Upper bound of budgets: a request quota has no maximum, so its budget could be infinite."""


class Account:
    """A limit that applies to a client, and the client's recent use.

    Most requests leave the rate far below the limit. Their use is only subtracted from a budget,
    which is so small that using all of it within `Rate.least_ms` does not exceed the limit. `Rate`
    records their total when the budget is used up, or when its next sample begins.
    """

    __slots__ = (
        "_budget", "_last_ms", "_left", "_left_at_record", "_longest_ms", "_per_second", "_rate",
        "_sample_end_ms", "at_once", "limit",
    )  # fmt: skip

    def __init__(self, rate: Rate) -> None:
        """Create an account without a limit; call `limit_to` before charging anything."""
        self.limit = 0.0
        self.at_once = 0
        """The maximum bytes of one response: as many as the limit allows in `Rate.least_ms`."""
        self._rate = rate
        self._per_second = 0.0
        self._longest_ms = THROTTLE_MAX_MS
        self._budget = 0
        self._left = self._left_at_record = 0
        """The remaining budget: now, and when `Rate` last recorded a use."""
        self._sample_end_ms = self._last_ms = _NEVER

    def limit_to(self, limit: float, *, is_time: bool) -> None:
        """Set the limit; recent use is kept."""
        if limit == self.limit:
            return
        self._record_pending()
        self.limit = limit
        self._per_second = limit * MICROSECONDS_OF_A_PERCENT if is_time else limit
        self._longest_ms = self._rate.window_ms if is_time else THROTTLE_MAX_MS
        least_ms = self._rate.least_ms
        self.at_once = int(min(limit * least_ms / 1_000, _AT_ONCE_MAX))
        self._budget = int(min(self._per_second * least_ms / 1_000, _BUDGET_MAX))
        self._sample_end_ms = _NEVER

    def charge(self, amount: int, now_ms: int) -> int:
        """Record used bytes, or microseconds of processing. Returns the milliseconds for which the
        client has to be throttled, 0 if it is within its limit. A negative amount reverts the
        previous call.
        """
        if 0 <= amount <= self._left and now_ms < self._sample_end_ms:
            self._left -= amount
            self._last_ms = now_ms
            return 0
        self._record_pending()
        rate = self._rate
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(self._per_second, now_ms)
        self._sample_end_ms = rate.sample_end_ms
        self._left = self._left_at_record = self._budget - rate.total
        self._last_ms = now_ms
        return min(throttle_ms, self._longest_ms)

    def _record_pending(self) -> None:
        if self._sample_end_ms != _NEVER:
            self._rate.record(self._left_at_record - self._left, self._last_ms)
            self._left_at_record = self._left


class Accounts:
    """The quota accounts of a client. An account is None if the client has no such limit."""

    __slots__ = ("at_once", "client_id", "consumer", "is_current", "producer", "request")

    def __init__(
        self,
        client_id: str,
        request: Account | None,
        producer: Account | None,
        consumer: Account | None,
    ) -> None:
        self.client_id = client_id
        self.request = request
        self.producer = producer
        self.consumer = consumer
        self.at_once = _AT_ONCE_MAX if consumer is None else consumer.at_once
        """The maximum bytes of one Fetch response."""
        self.is_current = True
        """False if the accounts have to be looked up again, for instance because limits have
        changed."""

    def belong_to(self, client_id: str | None) -> bool:
        return self.is_current and self.client_id == (client_id or "")

    def allow_at_once(self, client_id: str | None, max_bytes: int, min_bytes: int) -> bool:
        """Whether the consumer quota allows a response of `max_bytes`, or `min_bytes` if larger.
        False if the accounts are another client's, or have to be looked up again.
        """
        return self.belong_to(client_id) and max(max_bytes, min_bytes) <= self.at_once

    def charge(
        self,
        api_key: int,
        size_bytes: int,
        used_s: float,
        now_s: float,
        response: Sequence[Sized] | None,
    ) -> int:
        """Charge a request for its processing time, a Produce also for its bytes, and a Fetch or
        ShareFetch for the bytes of its response. Returns the milliseconds for which the client has
        to be throttled, 0 if it is within its limits.

        Args:
            response: the encoded response, in parts; None for a request without one, which is not
                charged for time.
        """
        # Rounded to the nearest, so that whole milliseconds are unchanged.
        now_ms = int(now_s * 1_000 + 0.5)
        throttle_ms = 0
        if self.request is not None and response is not None:
            throttle_ms = self.request.charge(int(used_s * 1_000_000), now_ms)
        if api_key == PRODUCE_KEY and self.producer is not None:
            return max(throttle_ms, self.producer.charge(size_bytes, now_ms))
        if api_key == FETCH_KEY and self.consumer is not None and response is not None:
            byte_count = sum(map(len, response))
            throttle_ms = max(throttle_ms, self.consumer.charge(byte_count, now_ms))
            if throttle_ms:
                # A throttled Fetch is answered without its data, so the data is not charged.
                self.consumer.charge(-byte_count, now_ms)
        elif api_key == SHARE_FETCH_KEY and self.consumer is not None and response is not None:
            # A throttled ShareFetch is answered with its data, because the records have been
            # acquired for this response.
            throttle_ms = max(throttle_ms, self.consumer.charge(sum(map(len, response)), now_ms))
        return throttle_ms


NO_ACCOUNTS: Final = Accounts("", None, None, None)
"""Placeholder for a client whose accounts have not been looked up yet."""
NO_ACCOUNTS.is_current = False
