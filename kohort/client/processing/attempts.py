"""One attempt at one record: deserialise its key and value, call the handler, and decide how the
attempt ends: done, retried, dead-lettered, skipped, or failing the run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable

from kohort.client.core.errors import DeserialisationError, HandlerError
from kohort.client.core.fetch.deserialisers import Deserialiser
from kohort.client.core.work import Item, Phase, Work
from kohort.client.deserialising import deserialised
from kohort.client.processing.dead_letters import DeadLetter
from kohort.client.processing.figures import Counts, RunFigures
from kohort.client.processing.options import Handler, RunOptions


class Attempts:
    def __init__(
        self,
        handler: Handler,
        *,
        read_key: Deserialiser | None,
        read_value: Deserialiser | None,
        timeout_ms: int | None,
    ) -> None:
        self._handler = handler
        self._read_key = read_key
        self._read_value = read_value
        self._timeout_ms = timeout_ms

    async def make(self, item: Item) -> None:
        """Deserialise the record and wait until its handler has returned.

        Raises:
            DeserialisationError: a plain-function deserialiser raised; another attempt would not
                help.
            TimeoutError: the attempt took longer than `timeout_ms` and was cancelled, even if the
                handler suppressed that.
            Exception: whatever the handler, or a deserialiser's coroutine, raised.
        """
        if self._timeout_ms is None:
            await self._make(item)
            return
        timeout = asyncio.timeout(self._timeout_ms / 1000)
        cause: Exception | None = None
        try:
            async with timeout:
                await self._make(item)
        except Exception as error:
            if not timeout.expired():
                raise
            cause = error
        # Also if the handler suppressed its cancellation: its work may be incomplete.
        if timeout.expired():
            raise TimeoutError(
                f"the handler did not return within handler_timeout_ms ({self._timeout_ms})"
            ) from cause

    async def _make(self, item: Item) -> None:
        record = item.record
        if self._read_key is not None or self._read_value is not None:
            # For each attempt anew: the handler may have changed the last one's value.
            record = await deserialised(record, self._read_key, self._read_value)
        answer = self._handler(record)
        if answer is not None and inspect.isawaitable(answer):
            await answer


logger = logging.getLogger(__name__)


class Outcomes:
    def __init__(
        self,
        work: Work,
        options: RunOptions,
        counts: Counts,
        chance: Callable[[], float],
        group_id: str | None,
    ) -> None:
        self._work = work
        self._options = options
        self._rules = options.rules
        self._counts = counts
        self._chance = chance
        self._group_id = group_id
        self._dead_letters_failing_since_ms: int | None = None
        self._dead_letter_error: str | None = None

    def succeeded(self, item: Item) -> None:
        """Record that the handler returned, or the dead letter was stored."""
        self._work.finish(item)
        counts = self._counts
        if item.phase is Phase.DEAD_LETTER:
            # Counted even if the partition was revoked: the dead letter exists.
            counts.dead_lettered += 1
            self._dead_letters_failing_since_ms = self._dead_letter_error = None
        elif item.is_void:
            counts.dropped += 1
        else:
            counts.handled += 1

    def failed(self, item: Item, error: Exception, now_ms: int) -> HandlerError | None:
        """Handle a failed attempt. Returns the error if it must fail the run, else None."""
        if item.phase is Phase.DEAD_LETTER:
            self._dead_letter_failed(item, error, now_ms)
            return None
        counts = self._counts
        counts.failed += 1
        item.attempts += 1
        item.error = error
        item.failed_at_ms = time.time_ns() // 1_000_000
        wait_ms = self._wait_ms(item, error)
        if item.is_void:
            counts.dropped += 1
            self._work.abandon(item)
        elif wait_ms is not None:
            counts.retried += 1
            logger.debug("%s failed and will be retried: %r", _name(item), error)
            self._work.rest(item, now_ms + wait_ms)
        elif self._options.dead_letter is not None:
            logger.warning("%s is sent to the dead letters: %r", _name(item), error)
            item.phase = Phase.DEAD_LETTER
            self._work.rest(item, now_ms)
        elif self._options.on_failure == "skip":
            logger.error("%s is skipped after %s", _name(item), _attempts(item), exc_info=error)
            counts.skipped += 1
            self._work.finish(item)
        else:
            self._work.abandon(item)
            return _as_raised(item, error)
        return None

    def letter(self, item: Item) -> DeadLetter:
        assert item.error is not None
        return DeadLetter(
            record=item.record,
            error=item.error,
            attempts=item.attempts,
            group_id=self._group_id,
            failed_at_ms=item.failed_at_ms,
        )

    def _wait_ms(self, item: Item, error: Exception) -> int | None:
        if isinstance(error, DeserialisationError):
            return None  # Deserialising the same bytes would fail again.
        try:
            is_retried = self._options.is_retried(error)
        except Exception:
            logger.exception("retry_on raised an exception; not retrying")
            return None
        return self._rules.wait_ms(item.attempts, self._chance) if is_retried else None

    def _dead_letter_failed(self, item: Item, error: Exception, now_ms: int) -> None:
        self._counts.dead_letter_failures += 1
        if self._dead_letters_failing_since_ms is None:
            self._dead_letters_failing_since_ms = now_ms
            logger.warning(
                "%s: writing the dead letter failed and will be retried: %r", _name(item), error
            )
        self._dead_letter_error = repr(error)
        item.dead_letter_failures += 1
        wait_ms = max(1, self._rules.backoff(item.dead_letter_failures, self._chance))
        self._work.rest(item, now_ms + wait_ms)

    def figures(self, now_ms: int, *, is_running: bool) -> RunFigures:
        work, counts = self._work, self._counts
        oldest = work.oldest()
        began_ms = None if oldest is None else oldest.began_ms

        def since(then_ms: int | None) -> float | None:
            return None if then_ms is None else (now_ms - then_ms) / 1000

        return RunFigures(
            is_running=is_running,
            handled=counts.handled,
            failed=counts.failed,
            retried=counts.retried,
            dead_lettered=counts.dead_lettered,
            dead_letter_failures=counts.dead_letter_failures,
            skipped=counts.skipped,
            dropped=counts.dropped,
            in_flight=work.begun_count,
            waiting=work.held_records - work.begun_count,
            held_bytes=work.held_bytes,
            oldest_in_flight_seconds=since(began_ms),
            oldest_in_flight=None if oldest is None else (oldest.partition, oldest.offset),
            handler_seconds=since(work.running_since_ms()),
            dead_letters_failing_seconds=since(self._dead_letters_failing_since_ms),
            dead_letter_error=self._dead_letter_error,
        )


def _attempts(item: Item) -> str:
    return "one attempt" if item.attempts == 1 else f"{item.attempts} attempts"


def _as_raised(item: Item, error: Exception) -> HandlerError:
    made = HandlerError(
        f"{_name(item)} could not be handled in {_attempts(item)}: {error!r}; it is not committed"
        " and will be read again. Set dead_letter to store such records elsewhere, or"
        ' on_failure="skip" to skip them',
        item.partition,
        item.offset,
        item.attempts,
        item.record,
    )
    made.__cause__ = error
    return made


def _name(item: Item) -> str:
    return f"{item.partition.topic}-{item.partition.partition}@{item.offset}"
