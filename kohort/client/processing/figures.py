"""Counters and state of a run, for health and metrics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from kohort.client.core.partitions import TopicPartition


@dataclass(slots=True, eq=False)
class Counts:
    handled: int = 0
    """Records whose handler returned."""
    failed: int = 0
    """Attempts that raised or timed out."""
    retried: int = 0
    """Attempts after the first one."""
    dead_lettered: int = 0
    """Records that were stored as dead letters."""
    dead_letter_failures: int = 0
    """Failed attempts to store a dead letter."""
    skipped: int = 0
    """Records that were skipped, with on_failure="skip"."""
    dropped: int = 0
    """Handlers that were cancelled, or returned too late, because their partition was revoked or
    the run's drain timeout had passed. Their records are read again, here or by another member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    is_running: bool
    """Whether `run` has not returned yet."""
    handled: int
    failed: int
    retried: int
    dead_lettered: int
    dead_letter_failures: int
    skipped: int
    dropped: int
    in_flight: int
    """Records started but not done: in a handler, or waiting for a retry."""
    waiting: int
    """Records polled but not started."""
    held_bytes: int
    """Bytes of the in-flight and waiting records."""
    oldest_in_flight_seconds: float | None
    """Seconds since the first attempt at the oldest record in flight; None if there is none."""
    oldest_in_flight: tuple[TopicPartition, int] | None
    """The partition and offset of the oldest record in flight."""
    handler_seconds: float | None
    """How long the longest-running handler has been running; None if none runs."""
    dead_letters_failing_seconds: float | None
    """How long storing dead letters has been failing; None if it does not fail."""
    dead_letter_error: str | None
    """The error of the last attempt to store a dead letter; None after a success."""
    failure: str | None
    """The error that ended the run, or is ending it; None if there is none."""

    def as_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.oldest_in_flight is not None:
            partition, offset = self.oldest_in_flight
            values["oldest_in_flight"] = {**partition._asdict(), "offset": offset}
        return values

    def problem(self, *, session_timeout_ms: int, max_poll_interval_ms: int) -> str | None:
        """Why the run makes no progress, as a sentence; None if it does, or has ended normally.

        A run keeps polling while handlers run, so the group does not notice a hanging one: a
        handler counts as hanging after max_poll_interval_ms.
        """
        if self.failure is not None and not self.is_running:
            return f"The run has failed: {self.failure}"
        failing = self.dead_letters_failing_seconds
        if self.is_running and failing is not None and failing * 1000 >= session_timeout_ms:
            return (
                f"Writing dead letters has failed for {failing:.0f} seconds:"
                f" {self.dead_letter_error}"
            )
        return self.handler_problem(max_poll_interval_ms)

    def handler_problem(self, limit_ms: int) -> str | None:
        """A sentence about a handler that hangs; None if there is none."""
        lasting = self.handler_seconds
        if not self.is_running or lasting is None or lasting * 1000 < limit_ms:
            return None
        return (
            f"A handler has not returned for {lasting:.0f} seconds, max_poll_interval_ms is"
            f" {limit_ms}. Set handler_timeout_ms, or raise max_poll_interval_ms."
        )
