"""The options of `Consumer.run`, checked before the first record is read."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kohort.client.core.errors import ConfigError
from kohort.client.core.retries import RetryRules
from kohort.client.core.work import WorkLimits
from kohort.client.processing.dead_letters import DeadLetterWriter

Ordering: TypeAlias = Literal["key", "partition"]
OnFailure: TypeAlias = Literal["stop", "skip"]
RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The exceptions of a handler that are retried: classes, or a function that decides."""

Handler: TypeAlias = Callable[[Any], Awaitable[object] | object]

_COUNTS: Final = {
    "concurrency": 1,
    "in_flight_records_limit": 1,
    "in_flight_bytes_limit": 1,
    "uncommitted_records_limit": 1,
    "retry_backoff_ms": 0,
    "retry_backoff_max_ms": 0,
    "drain_timeout_ms": 0,
}
"""Integer options and their minimum."""

_MAYBE: Final = {"retries": 0, "handler_timeout_ms": 1, "commit_interval_ms": 0}
"""Integer options that may also be None, and their minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The keyword arguments of `Consumer.run`, which documents them.

    Raises:
        ConfigError: an option has an unusable value, or two options contradict each other.
    """

    concurrency: int
    ordering: Ordering
    retries: int | None
    retry_on: RetryOn
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    retry_jitter: float
    handler_timeout_ms: int | None
    dead_letter: str | DeadLetterWriter | None
    on_failure: OnFailure
    commit_interval_ms: int | None
    drain_timeout_ms: int
    in_flight_records_limit: int
    in_flight_bytes_limit: int
    uncommitted_records_limit: int
    stop_on: Collection[signal.Signals]

    def __post_init__(self) -> None:
        for name, least in (_COUNTS | _MAYBE).items():
            value = getattr(self, name)
            if value is None and name in _MAYBE:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                none = " or None" if name in _MAYBE else ""
                raise ConfigError(
                    f"{name} must be a whole number of {least} or more{none}, not {value!r}"
                )
        if not 0 <= self.retry_jitter < 1:
            raise ConfigError(f"retry_jitter must be 0 or more and below 1: {self.retry_jitter!r}")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError("retry_backoff_max_ms must not be less than retry_backoff_ms")
        if self.ordering not in {"key", "partition"}:
            raise ConfigError(f"ordering must be key or partition, not {self.ordering!r}")
        self._check_failures()

    def _check_failures(self) -> None:
        if self.on_failure not in {"stop", "skip"}:
            raise ConfigError(f"on_failure must be stop or skip, not {self.on_failure!r}")
        dead_letter = self.dead_letter
        if dead_letter is None:
            return
        if self.on_failure == "skip":
            raise ConfigError("with dead_letter nothing is skipped; leave on_failure away")
        is_topic = isinstance(dead_letter, str) and bool(dead_letter.strip())
        if not is_topic and not callable(dead_letter):
            raise ConfigError(
                "dead_letter must be the name of a topic, or a coroutine function that is given a"
                f" DeadLetter, not {dead_letter!r}"
            )

    @property
    def limits(self) -> WorkLimits:
        """The limits on records held."""
        return WorkLimits(
            self.in_flight_records_limit,
            self.in_flight_bytes_limit,
            self.uncommitted_records_limit,
        )

    @property
    def rules(self) -> RetryRules:
        """The rules for retries."""
        return RetryRules(
            self.retries, self.retry_backoff_ms, self.retry_backoff_max_ms, self.retry_jitter
        )

    def is_retried(self, error: Exception) -> bool:
        """Whether `retry_on` says that another attempt may help."""
        wanted = self.retry_on
        if isinstance(wanted, (type, tuple)):
            return isinstance(error, wanted)
        return wanted(error)
