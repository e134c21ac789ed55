"""One attempt at one record or batch: deserialise keys and values, call the handler, and decide how
the attempt ends: done, retried, dead-lettered, skipped, or failing the run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, TypeGuard

from kohort.client.core.errors import DeserialisationError, HandlerError
from kohort.client.core.fetch.deserialisers import Deserialiser
from kohort.client.core.lanes import Item
from kohort.client.core.records import AnyRecord
from kohort.client.core.work import Work
from kohort.client.deserialising import deserialised
from kohort.client.processing.dead_letters import DeadLetter
from kohort.client.processing.figures import Counts, RunFigures
from kohort.client.processing.options import Around, Handler, RunOptions


class Attempts:
    def __init__(
        self,
        handler: Handler,
        *,
        read_key: Deserialiser | None,
        read_value: Deserialiser | None,
        timeout_ms: int | None,
        around: Around | None = None,
    ) -> None:
        self._handler = handler if around is None else _within(around, handler)
        self._read_key = read_key
        self._read_value = read_value
        self._timeout_ms = timeout_ms
        self._is_direct = read_key is None and read_value is None

    def begin(self, item: Item) -> Awaitable[object] | None:
        """Begin an attempt: deserialise the record and call its handler. Returns None if that has
        succeeded already, else an awaitable that completes it.

        This call, and awaiting the result, may raise:
            DeserialisationError: a plain-function deserialiser raised; another attempt would not
                help.
            TimeoutError: the attempt took longer than `timeout_ms` and was cancelled, even if the
                handler suppressed that.
            Exception: whatever the handler, or a deserialiser's coroutine, raised.
        """
        if self._timeout_ms is not None:
            return self._begin_timed(item, self._timeout_ms)
        if self._is_direct and item.members is None:
            answer = self._handler(item.record)
            return answer if type(answer) is CoroutineType or is_awaitable(answer) else None
        return self._make(item)

    def _begin_timed(self, item: Item, timeout_ms: int) -> Awaitable[object] | None:
        """Run the first step of the coroutine here: if it does not suspend, no timer is needed."""
        began_s = asyncio.get_running_loop().time()
        attempt: Coroutine[Any, Any, object] = self._make(item)
        try:
            awaited = attempt.send(None)
        except StopIteration:
            return None
        return _within_time(_Begun(attempt, awaited), began_s, timeout_ms)

    async def _make(self, item: Item) -> None:
        if item.members is None:
            record = item.record
            answer = self._handler(record if self._is_direct else await self._read(record))
        else:
            answer = self._handler([await self._read(one.record) for one in item.members])
        if is_awaitable(answer):
            await answer

    async def _read(self, record: AnyRecord) -> AnyRecord:
        if self._is_direct:
            return record
        # Deserialise anew for each attempt: the handler may have changed the previous attempt's
        # value.
        return await deserialised(record, self._read_key, self._read_value)


class _Begun:
    """The rest of a coroutine that has run up to its first suspension, as an awaitable."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        """The object that the coroutine yielded, for which the event loop has to wait."""

    def __await__(self) -> Generator[object, Any, object]:
        send, throw, awaited = self._coroutine.send, self._coroutine.throw, self._awaited
        try:
            while True:
                try:
                    result = yield awaited
                except BaseException as error:  # noqa: BLE001 - the coroutine's, such as its cancellation.
                    awaited = throw(error)
                else:
                    awaited = send(result)
        except StopIteration as end:
            return end.value


async def _within_time(attempt: _Begun, began_s: float, timeout_ms: int) -> None:
    timeout = asyncio.timeout_at(began_s + timeout_ms / 1000)
    cause: Exception | None = None
    try:
        async with timeout:
            await attempt
    except Exception as error:
        if not timeout.expired():
            raise
        cause = error
    # Raised even if the handler suppressed its cancellation: its work may be incomplete.
    if timeout.expired():
        raise TimeoutError(
            f"the handler did not return within handler_timeout_ms ({timeout_ms})"
        ) from cause


def _within(around: Around, handler: Handler) -> Handler:
    async def handle(record: AnyRecord) -> None:
        answer = handler(record)
        if is_awaitable(answer):
            await answer

    return lambda record: around(record, handle)


def is_awaitable(answer: Any) -> TypeGuard[Awaitable[object]]:  # noqa: ANN401 - whatever a handler returns.
    return answer is not None and (type(answer) is CoroutineType or inspect.isawaitable(answer))


logger = logging.getLogger(__name__)


class Outcomes:
    def __init__(
        self,
        work: Work,
        options: RunOptions,
        counts: Counts,
        chance: Callable[[], float],
        group_id: str | None,
        redo: Callable[[int], None] | None = None,
    ) -> None:
        """`redo`: with transactions, called with the time of the next attempt, to abort the
        transaction.
        """
        self._redo = redo
        self._work = work
        self._options = options
        self._counts = counts
        self._chance = chance
        self._group_id = group_id
        self._dead_letters_failing_since_ms: int | None = None
        self._dead_letter_error: str | None = None

    def succeeded(self, item: Item, now_ms: int, *, goes_on: bool) -> Item | None:
        """Record that the handler returned, or the dead letter was stored. With `goes_on`, return
        the next item for the worker, as `Work.finish` does.
        """
        following = self._work.finish(item, now_ms, goes_on=goes_on)
        counts = self._counts
        count = 1 if item.members is None else len(item.members)
        if item.failure is not None and item.failure.is_final:
            # Counted even if the partition was revoked: the dead letter exists.
            counts.dead_lettered += count
            self._dead_letters_failing_since_ms = self._dead_letter_error = None
        elif item.lane.share.is_dropped:
            counts.dropped += count
        else:
            counts.handled += count
        return following

    def failed(self, item: Item, error: Exception, now_ms: int) -> HandlerError | None:
        """Handle a failed attempt. Returns the error if it must fail the run, else None."""
        if item.is_final:
            self._dead_letter_failed(item, error, now_ms)
            return None
        counts, failure = self._counts, item.failing()
        counts.failed += 1
        failure.attempts += 1
        failure.error = error
        failure.failed_at_ms = time.time_ns() // 1_000_000
        wait_ms = self._wait_ms(failure.attempts, error)
        if item.is_void:
            counts.dropped += 1
            self._work.abandon(item)
        elif wait_ms is not None:
            counts.retried += 1
            logger.debug("%s failed and will be retried: %r", _name(item), error)
            self._try_again(item, now_ms + wait_ms)
        elif item.members is not None and len(item.members) > 1:
            logger.debug("the batch from %s is split: %r", _name(item), error)
            self._work.split(item, now_ms)
            if self._redo is not None:
                self._redo(now_ms)
        elif self._options.dead_letter is not None:
            logger.warning("%s is sent to the dead letters: %r", _name(item), error)
            failure.is_final = True
            self._try_again(item, now_ms)
        elif self._options.on_failure == "skip":
            logger.error("%s is skipped after %s", _name(item), _attempts(item), exc_info=error)
            counts.skipped += 1
            self._work.finish(item, now_ms)
        else:
            self._work.abandon(item)
            return _as_raised(item, error)
        return None

    def _try_again(self, item: Item, at_ms: int) -> None:
        if self._redo is None:
            self._work.rest(item, at_ms)
        else:
            self._work.abandon(item)
            self._redo(at_ms)

    def letter(self, item: Item) -> DeadLetter:
        failure = item.failing()
        assert failure.error is not None
        return DeadLetter(
            record=item.record,
            error=failure.error,
            attempts=failure.attempts,
            group_id=self._group_id,
            failed_at_ms=failure.failed_at_ms,
        )

    def _wait_ms(self, attempts: int, error: Exception) -> int | None:
        if isinstance(error, DeserialisationError):
            return None  # Deserialising the same bytes would fail again.
        try:
            is_retried = self._options.is_retried(error)
        except Exception:
            logger.exception("retry_on raised an exception; not retrying")
            return None
        return self._options.wait_ms(attempts, self._chance) if is_retried else None

    def _dead_letter_failed(self, item: Item, error: Exception, now_ms: int) -> None:
        self._counts.dead_letter_failures += 1
        if self._dead_letters_failing_since_ms is None:
            self._dead_letters_failing_since_ms = now_ms
            logger.warning(
                "%s: writing the dead letter failed and will be retried: %r", _name(item), error
            )
        self._dead_letter_error = repr(error)
        failure = item.failing()
        failure.write_failures += 1
        wait_ms = max(1, self._options.backoff_ms(failure.write_failures, self._chance))
        self._try_again(item, now_ms + wait_ms)

    def figures(
        self, now_ms: int, *, is_running: bool, failure: BaseException | None
    ) -> RunFigures:
        work, counts = self._work, self._counts
        begun = list(work.begun())
        oldest = min(begun, key=lambda item: item.began_ms or 0, default=None)
        began_ms = None if oldest is None else oldest.began_ms
        running = [item.runs_since_ms for item in begun if item.runs_since_ms is not None]

        def since(then_ms: int | None) -> float | None:
            return None if then_ms is None else (now_ms - then_ms) / 1000

        return RunFigures(
            is_running=is_running,
            **dataclasses.asdict(counts),
            in_flight=work.begun_count,
            waiting=work.held_records - work.begun_count,
            held_bytes=work.held_bytes,
            oldest_in_flight_seconds=since(began_ms),
            oldest_in_flight=None if oldest is None else (oldest.partition, oldest.offset),
            handler_seconds=since(min(running, default=None)),
            dead_letters_failing_seconds=(
                since(self._dead_letters_failing_since_ms) if is_running else None
            ),
            dead_letter_error=self._dead_letter_error,
            failure=None if failure is None else repr(failure),
        )


def _attempts(item: Item) -> str:
    count = item.failing().attempts
    return "one attempt" if count == 1 else f"{count} attempts"


def _as_raised(item: Item, error: Exception) -> HandlerError:
    made = HandlerError(
        f"{_name(item)} could not be handled in {_attempts(item)}: {error!r}; it is not committed"
        " and will be read again. Set dead_letter to store such records elsewhere, or"
        ' on_failure="skip" to skip them',
        item.partition,
        item.offset,
        item.failing().attempts,
        item.record,
    )
    made.__cause__ = error
    return made


def _name(item: Item) -> str:
    return f"{item.partition.topic}-{item.partition.partition}@{item.offset}"
