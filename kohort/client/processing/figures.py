"""What a run has done and is doing, for health and metrics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from kohort.client.core.partitions import TopicPartition


@dataclass(slots=True, eq=False)
class Counts:
    """Counts of all runs of one consumer together."""

    handled: int = 0
    """Records whose handler returned."""
    failed: int = 0
    """Attempts that raised, or took too long."""
    retried: int = 0
    """Attempts that were made again."""
    dead_lettered: int = 0
    """Records that were stored as dead letters."""
    dead_letter_failures: int = 0
    """Attempts to store one that failed."""
    skipped: int = 0
    """Records that were passed over, with on_failure="skip"."""
    dropped: int = 0
    """Handlers that were cancelled, or returned too late, because their partition was gone or the
    time for the end was over. Their records come again, here or elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One consumer's runs at one moment."""

    is_running: bool
    handled: int
    failed: int
    retried: int
    dead_lettered: int
    dead_letter_failures: int
    skipped: int
    dropped: int
    in_flight: int
    """Records that were begun and are not done: in a handler, or waiting for another attempt."""
    waiting: int
    """Records that are held and were not begun."""
    held_bytes: int
    """Bytes of the records in flight and of those waiting."""
    oldest_in_flight_seconds: float | None
    """Since the first attempt at the record that was begun first; None if there is none."""
    oldest_in_flight: tuple[TopicPartition, int] | None
    """Its partition and offset."""
    handler_seconds: float | None
    """For how long the handler has run that was called first; None if none runs."""
    dead_letters_failing_seconds: float | None
    """For how long no dead letter could be stored; None if that is not so."""
    dead_letter_error: str | None

    def as_dict(self) -> dict[str, Any]:
        """All of it in what JSON knows."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.oldest_in_flight is not None:
            partition, offset = self.oldest_in_flight
            values["oldest_in_flight"] = {**partition._asdict(), "offset": offset}
        return values

    def problem(self, *, session_timeout_ms: int, max_poll_interval_ms: int) -> str | None:
        """Why it does not do its work, in a sentence; None if it does.

        A run polls whatever its handlers do, so the group does not notice one that hangs: it is
        judged by the time that there may be between two polls.
        """
        failing = self.dead_letters_failing_seconds
        if self.is_running and failing is not None and failing * 1000 >= session_timeout_ms:
            return (
                f"Dead letters cannot be written for {failing:.0f} seconds:"
                f" {self.dead_letter_error}"
            )
        return self.handler_problem(max_poll_interval_ms)

    def handler_problem(self, limit_ms: int) -> str | None:
        """Whether a handler hangs, in a sentence; None if not."""
        lasting = self.handler_seconds
        if not self.is_running or lasting is None or lasting * 1000 < limit_ms:
            return None
        return (
            f"A handler has not returned for {lasting:.0f} seconds, max_poll_interval_ms is"
            f" {limit_ms}. Set handler_timeout_ms, or max_poll_interval_ms higher."
        )
