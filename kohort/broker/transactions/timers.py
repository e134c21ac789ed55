"""Timers of transactional ids: transaction timeouts, and retries of failed writes.

The timeout uses the wall clock, which may jump, so it is checked every few seconds at least. Many
ids may be due at once, such as after a pause of the process; they are handled in time slices.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.transactional_id import TransactionalId
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import RoundRobin, Slice

RETRY_MS: Final = 1_000
"""Delay before a failed write of a marker, or of an overdue transaction's abort, is retried."""

TimedStep: TypeAlias = Callable[[TransactionalId, int], None]


class TransactionTimers:
    def __init__(
        self,
        purgatory: Purgatory,
        clock: Clock,
        slices: RoundRobin,
        run_step: Callable[[str, TimedStep], None],
        *,
        timeout_check_ms: int,
    ) -> None:
        """`run_step(name, step)` calls `step` with the transactional id `name`, if it exists."""
        self._clock = clock
        self._slices = slices
        self._run_step = run_step
        self._timeout_check_ms = timeout_check_ms
        self._timeouts = purgatory.keyed_timers(self._on_overdue, kind="Transaction")
        self._retries = purgatory.keyed_timers(self._on_retry, kind="TransactionMarkers")

    @property
    def retry_count(self) -> int:
        return len(self._retries)

    def watch(self, txn: TransactionalId) -> None:
        deadline_ms = txn.deadline_ms
        # No transaction is aborted while a record is being written; when the write ends, `watch` is
        # called again.
        if deadline_ms is None or txn.is_pending:
            return
        remaining_ms = deadline_ms - self._clock.wall_ms()
        name = txn.transactional_id
        scheduled_ms = self._timeouts.deadline_ms(name)
        if remaining_ms <= 0 and scheduled_ms is not None:
            # Keep the scheduled time: if `abort_later` set it, an earlier abort would fail again.
            return
        check_ms = self._clock.monotonic_ms() + min(max(1, remaining_ms), self._timeout_check_ms)
        if scheduled_ms is None or scheduled_ms > check_ms:
            self._timeouts.schedule(name, check_ms)

    def abort_later(self, txn: TransactionalId) -> None:
        """After RETRY_MS, retry the abort of a transaction whose abort could not be written, if the
        transaction is still overdue.
        """
        if self._timeouts.deadline_ms(txn.transactional_id) is None:
            retry_ms = self._clock.monotonic_ms() + RETRY_MS
            self._timeouts.schedule(txn.transactional_id, retry_ms)

    def retry_later(self, name: str) -> None:
        self._retries.schedule(name, self._clock.monotonic_ms() + RETRY_MS)

    def cancel(self, name: str) -> None:
        """Cancel the timers of a transactional id that was removed or is broken."""
        self._timeouts.cancel(name)
        self._retries.cancel(name)

    def cancel_all(self) -> None:
        self._timeouts.cancel_all()
        self._retries.cancel_all()

    def _on_overdue(self, names: list[str], now_ms: int) -> None:
        del now_ms
        for name in names:
            self._slices.add(partial(self._run_slice, name, TransactionalId.abort_overdue))

    def _on_retry(self, names: list[str], now_ms: int) -> None:
        del now_ms
        for name in names:
            self._slices.add(partial(self._run_slice, name, TransactionalId.retry))

    def _run_slice(self, name: str, step: TimedStep, _: Slice) -> None:
        self._run_step(name, step)
