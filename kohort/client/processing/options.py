"""The options of `Consumer.run`, checked before the first record is read."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict

from kohort.client.config import check_names, check_number
from kohort.client.core.errors import ConfigError
from kohort.client.core.work_limits import BatchLimits, WorkLimits
from kohort.client.processing.dead_letters import DeadLetterWriter
from kohort.client.processing.unreadable import OnUnreadable

Ordering: TypeAlias = Literal["key", "partition"]
OnFailure: TypeAlias = Literal["stop", "skip"]
RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The exceptions of a handler that are retried: classes, or a function that decides."""

Handler: TypeAlias = Callable[[Any], Awaitable[object] | object]

Around: TypeAlias = Callable[[Any, Callable[[Any], Awaitable[object]]], Awaitable[object]]
"""A coroutine function that gets a record (or a batch) and the handler, and awaits the handler."""

IN_FLIGHT_RECORDS_LIMIT: Final = 2_000

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


class RunSettings(TypedDict, total=False):
    """The keyword arguments of `Consumer.run`; `RunOptions` says what they mean."""

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
    stop_on: signal.Signals | Collection[signal.Signals]
    around: Around | None
    on_unreadable: OnUnreadable
    producer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """All options of one run.

    Raises:
        ConfigError: an option has an unusable value, or two options contradict each other.
    """

    concurrency: int = 16
    """The largest number of handlers running at once."""
    ordering: Ordering = "partition"
    """"partition": one record of a partition at a time; "key": one record of each key of a
    partition at a time, where records without a key count as having the same key. Keys are compared
    as bytes. A record that is retried keeps its place."""
    retries: int | None = 3
    """Attempts after the first one; None: unlimited."""
    retry_on: RetryOn = Exception
    """The exceptions that are retried: classes, or a function that decides."""
    retry_backoff_ms: int = 500
    """The wait before the second attempt; it doubles for each further attempt."""
    retry_backoff_max_ms: int = 30_000
    """The longest wait between attempts."""
    retry_jitter: float = 0.2
    """The share by which waits vary at random; 0 for none."""
    handler_timeout_ms: int | None = None
    """A handler that takes longer is cancelled, which counts as a TimeoutError."""
    dead_letter: str | DeadLetterWriter | None = None
    """Where a record goes whose attempts are used up, or that cannot be deserialised: a topic,
    which requires aiokafka (`kohort[dead-letters]`), or a coroutine function that returns when the
    `DeadLetter` is stored. Retried until it succeeds."""
    on_failure: OnFailure = "stop"
    """Without `dead_letter`, after the last attempt: "stop" raises a HandlerError once the running
    handlers have finished, "skip" logs the record and continues after it."""
    commit_interval_ms: int | None = None
    """auto_commit_interval_ms by default. enable_auto_commit and other kinds of commits have no
    effect during a run; `commit()` commits the handled offsets."""
    drain_timeout_ms: int = 30_000
    """How long handlers and retries have when their partitions are revoked, at most a quarter of
    max_poll_interval_ms, and at the end of the run. Retries due later are made at once. Handlers
    that take longer are cancelled, and their records are read again."""
    in_flight_records_limit: int = IN_FLIGHT_RECORDS_LIMIT
    """The largest number of records held, waiting or in a handler."""
    in_flight_bytes_limit: int = 16 << 20
    """No more records are taken while the held records exceed this many bytes."""
    uncommitted_records_limit: int = 10_000
    """Maximum records of a partition after the first that is not done: bounds how many may be
    handled twice."""
    stop_on: signal.Signals | Collection[signal.Signals] = ()
    """Signals that end the run like `end_run`; a second signal has its usual effect. Use
    signal.SIGTERM in a container. Only for a run in the main thread."""
    around: Around | None = None
    """Called instead of the handler for each attempt, with the record and the handler, which it
    awaits: for tracing, logging context, error reports."""
    on_unreadable: OnUnreadable = "stop"
    """What happens at a batch that is damaged or too large: "stop" raises the error of the poll,
    "skip" logs the batch and continues after it, "dead_letter" stores a dead letter without key and
    value."""
    producer: Any = None
    """aiokafka's transactional producer, started by the application: what handlers send with it,
    dead letters, and the offsets are one transaction. commit_interval_ms, then 100 by default, is
    how long one lasts."""

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            check_number(name, getattr(self, name), least)
        for name, least in _MAYBE.items():
            if (value := getattr(self, name)) is not None:
                check_number(name, value, least, " or None")
        if not 0 <= self.retry_jitter < 1:
            raise ConfigError(f"retry_jitter must be 0 or more and below 1: {self.retry_jitter!r}")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError("retry_backoff_max_ms must not be less than retry_backoff_ms")
        if self.ordering not in {"key", "partition"}:
            raise ConfigError(f"ordering must be key or partition, not {self.ordering!r}")
        if self.around is not None and not callable(self.around):
            raise ConfigError(f"around must be a coroutine function, not {self.around!r}")
        self._check_failures()

    def _check_failures(self) -> None:
        classes = self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)
        are_classes = all(
            isinstance(one, type) and issubclass(one, BaseException) for one in classes
        )
        if not are_classes and (isinstance(self.retry_on, type) or not callable(self.retry_on)):
            raise ConfigError(
                "retry_on must be an exception class, a tuple of them, or a function that takes an"
                f" exception, not {self.retry_on!r}"
            )
        if self.on_failure not in {"stop", "skip"}:
            raise ConfigError(f"on_failure must be stop or skip, not {self.on_failure!r}")
        if self.on_unreadable not in {"stop", "skip", "dead_letter"}:
            raise ConfigError(
                f"on_unreadable must be stop, skip or dead_letter, not {self.on_unreadable!r}"
            )
        dead_letter = self.dead_letter
        if self.on_unreadable == "dead_letter" and dead_letter is None:
            raise ConfigError("on_unreadable='dead_letter' needs dead_letter")
        if dead_letter is None:
            return
        if self.on_failure == "skip":
            raise ConfigError(
                "on_failure='skip' has no effect with dead_letter; remove one of them"
            )
        is_topic = isinstance(dead_letter, str) and bool(dead_letter.strip())
        if not is_topic and not callable(dead_letter):
            raise ConfigError(
                "dead_letter must be a topic name, or a coroutine function that takes a DeadLetter,"
                f" not {dead_letter!r}"
            )

    @property
    def limits(self) -> WorkLimits:
        return WorkLimits(
            self.in_flight_records_limit,
            self.in_flight_bytes_limit,
            self.uncommitted_records_limit,
        )

    def wait_ms(self, failed_count: int, random: Callable[[], float]) -> int | None:
        """Return the wait after this many failures; None if the attempts are used up. `random`
        gives [0, 1).
        """
        if self.retries is not None and failed_count > self.retries:
            return None
        return self.backoff_ms(failed_count, random)

    def backoff_ms(self, failed_count: int, random: Callable[[], float]) -> int:
        """Return the wait, like `wait_ms`, without a limit on the number of attempts."""
        # After sixty doublings the limit applies in any case.
        doublings = min(failed_count - 1, 60)
        wait_ms = min(self.retry_backoff_ms << doublings, self.retry_backoff_max_ms)
        return int(wait_ms * (1 - self.retry_jitter + 2 * self.retry_jitter * random()))

    def is_retried(self, error: Exception) -> bool:
        """Whether `retry_on` says that another attempt may help."""
        wanted = self.retry_on
        if isinstance(wanted, (type, tuple)):
            return isinstance(error, wanted)
        return wanted(error)


def check_handler(handler: object) -> None:
    """Raise a ConfigError if `handler` is not callable, or is a generator function."""
    if inspect.iscoroutine(handler):
        handler.close()  # Else Python warns that it was never awaited.
        raise ConfigError(
            f"handler is a coroutine, the result of {handler.__qualname__}(): pass the function, do"
            " not call it"
        )
    if not callable(handler):
        raise ConfigError(f"handler must be a function that takes records, not {handler!r}")
    # An object's __call__ method may be a generator function, too.
    for function in (handler, type(handler).__call__):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                f"handler {handler!r} is a generator function, whose body would never run: remove"
                " its yield"
            )


def options_from(settings: Mapping[str, Any]) -> RunOptions:
    """Create the options from keyword arguments.

    Raises:
        ConfigError: an option is unknown, or `RunOptions` rejects the options.
    """
    check_names(settings, RunSettings.__annotations__, "option")
    return RunOptions(**settings)


def batch_options_from(
    max_records: int, max_wait_ms: int, settings: Mapping[str, Any]
) -> tuple[RunOptions, BatchLimits]:
    """Create the options of `run_batches`. Raises a ConfigError like `options_from`."""
    check_number("max_records", max_records, 1)
    check_number("max_wait_ms", max_wait_ms, 0)
    # Two batches, because the next one is gathered while one is handled.
    limit = max(IN_FLIGHT_RECORDS_LIMIT, 2 * max_records)
    options = options_from({"in_flight_records_limit": limit, **settings})
    if options.ordering != "partition":
        raise ConfigError("ordering must be partition for run_batches: a batch is of one partition")
    if options.in_flight_records_limit < max_records:
        raise ConfigError("in_flight_records_limit must not be less than max_records")
    return options, BatchLimits(max_records, max_wait_ms)
