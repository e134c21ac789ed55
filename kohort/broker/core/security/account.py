"""The accounts of clients: what a request is charged, and for how long the client is throttled.

Every request of a client with limits is charged here. If there is a C compiler, this module is
compiled (see docs/adr): account.pxd beside it gives the types. Without compilation it works the
same, and takes twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final

from kohort.broker.core.security.rate import Rate

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1

MICROSECONDS_OF_A_PERCENT: Final = 10_000
"""The time in each second that one percent stands for."""

NOT_THEIRS: Final = -1
"""The result of accounts that are not those of the client, or not any more: nothing is charged."""

_PRODUCE: Final = PRODUCE_KEY
_FETCH: Final = FETCH_KEY
_NOT_BEGUN: Final = -1
"""The time of no sample: before all times."""
_BUDGET_MAX: Final = 1 << 62
"""Bound on a budget: a limit for time has no largest value, and what is left of one is a machine's
integer.
"""
_AT_ONCE_MAX: Final = (1 << 31) - 1
"""The most that a client can ask for at once."""


class Account:
    """A limit that applies to a client, and what has been used of it.

    As long as what was used would be within the limit in the shortest time that a rate is measured
    over, a use is subtracted from what is left, and nothing else is computed. `Rate` is told when
    its sample turns, or when nothing is left; only then is there anything to wait for.
    """

    __slots__ = (
        "_a_second", "_budget", "_left_before", "_longest_ms", "_rate", "at_once", "last_ms",
        "left", "limit", "sample_end_ms",
    )  # fmt: skip

    def __init__(self, rate: Rate) -> None:
        """Begin without a limit: `limit_to` has to be called before anything is charged."""
        self.limit = 0.0
        self.at_once = 0
        """The most for one answer: what the limit allows in all windows but one."""
        self._rate = rate
        self._a_second = 0.0
        self._longest_ms: int | None = None
        self._budget = 0
        """The most that may have been used, whenever that was."""
        self.sample_end_ms = _NOT_BEGUN
        """The time from which a use is not of the same sample."""
        self.left = self._left_before = 0
        """What is left of the budget, now and when the rate was last told."""
        self.last_ms = 0
        """The time of the last use."""

    def limit_to(self, limit: float, *, is_time: bool) -> None:
        """Set the limit; what has been used before counts."""
        if limit == self.limit:
            return
        self._tell()
        self.limit = limit
        self._a_second = limit * MICROSECONDS_OF_A_PERCENT if is_time else limit
        self._longest_ms = self._rate.window_ms if is_time else None
        least_ms = self._rate.least_ms
        self.at_once = int(limit * least_ms / 1_000)
        # Rounded down, and beyond some limits less than they are: what exceeds it is computed.
        self._budget = int(min(self._a_second * least_ms, _BUDGET_MAX)) // 1_000
        self.sample_end_ms = _NOT_BEGUN

    def charge(self, amount: int, now_ms: int) -> int:
        """Record a use: bytes, or microseconds of time. Returns the milliseconds for which the
        client has to be throttled, 0 if it is within its limit. A negative amount takes back the
        last use.
        """
        if 0 <= amount <= self.left and now_ms < self.sample_end_ms:
            self.left -= amount
            self.last_ms = now_ms
            return 0
        return self._charge_to_rate(amount, now_ms)

    def _charge_to_rate(self, amount: int, now_ms: int) -> int:
        self._tell()
        rate = self._rate
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(self._a_second, now_ms)
        self.sample_end_ms = rate.sample_end_ms
        self.left = self._left_before = max(self._budget - rate.total, -1)
        self.last_ms = now_ms
        if throttle_ms and self._longest_ms is not None:
            return min(throttle_ms, self._longest_ms)
        return throttle_ms

    def _tell(self) -> None:
        """Let the rate know what it has not been told of."""
        if self.sample_end_ms != _NOT_BEGUN:
            self._rate.record(self._left_before - self.left, self.last_ms)
            self._left_before = self.left


class Accounts:
    """What a client is charged on; None where it has no limit."""

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
        self.at_once = _AT_ONCE_MAX if consumer is None else min(consumer.at_once, _AT_ONCE_MAX)
        """The most bytes for one answer to a Fetch."""
        self.is_current = True
        """False once limits have changed, or for another reason they are to be looked up again."""

    def allow_at_once(self, client_id: str | None, max_bytes: int, min_bytes: int) -> bool:
        """Whether a client may get so much in one answer; False also for one that is another."""
        return (
            self.is_current
            and self.client_id == (client_id or "")
            and max_bytes <= self.at_once
            and min_bytes <= self.at_once
        )

    def charge(
        self,
        client_id: str | None,
        api_key: int,
        size_bytes: int,
        used_s: float,
        now_s: float,
        answer: Sequence[Sized] | None,
    ) -> int:
        """Charge a request for the time that it used, and for its own bytes if it is a Produce, or
        those of its answer if it is a Fetch. Returns the milliseconds for which the client has to
        be throttled, 0 if it is within its limits, or `NOT_THEIRS`.

        Args:
            answer: the encoded answer, in parts; None for a request that is not answered, which is
                not charged for time.
        """
        if not self.is_current or self.client_id != (client_id or ""):
            return NOT_THEIRS
        # To the nearest: a time of whole milliseconds stays what it is.
        now_ms = int(now_s * 1_000 + 0.5)
        throttle_ms = 0
        # What `Account.charge` does for nearly every request is inlined: uncompiled, a call that
        # finds nothing of itself in the processor's caches takes as long as all the rest.
        account = self.request
        if account is not None and answer is not None:
            amount = int(used_s * 1_000_000)
            if amount <= account.left and now_ms < account.sample_end_ms:
                account.left -= amount
                account.last_ms = now_ms
            else:
                throttle_ms = account.charge(amount, now_ms)
        if api_key == _PRODUCE:
            account = self.producer
            if account is not None:
                if size_bytes > account.left or now_ms >= account.sample_end_ms:
                    return max(throttle_ms, account.charge(size_bytes, now_ms))
                account.left -= size_bytes
                account.last_ms = now_ms
        elif api_key == _FETCH:
            account = self.consumer
            if account is not None and answer is not None:
                amount = 0
                for part in answer:
                    amount += len(part)
                if throttle_ms or amount > account.left or now_ms >= account.sample_end_ms:
                    return _charge_answer(account, amount, throttle_ms, now_ms)
                account.left -= amount
                account.last_ms = now_ms
        return throttle_ms


NO_ACCOUNTS: Final = Accounts("", None, None, None)
"""The accounts of a client that has not been looked up."""
NO_ACCOUNTS.is_current = False


def _charge_answer(account: Account, byte_count: int, throttle_ms: int, now_ms: int) -> int:
    """Charge the answer to a Fetch. If the client is throttled, by whichever quota, the data is not
    sent, and not charged.
    """
    of_bytes_ms = account.charge(byte_count, now_ms)
    if throttle_ms or of_bytes_ms:
        account.charge(-byte_count, now_ms)
    return max(throttle_ms, of_bytes_ms)
