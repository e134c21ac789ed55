"""Who waits for an answer of a group.

The core holds a ticket for as long as a request is parked and gives it back with the answer. What
the client does meanwhile is no concern of the core: if its connection is gone, the answer falls to
the ground, and the step that produced it has happened all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kohort.broker.runtime.promise import Promise
from kohort.protocol.errors import KafkaError

A = TypeVar("A")
R = TypeVar("R")


class Ticket(Generic[A]):
    """A handle for one answer, given exactly once: by `answer` or by `fail`.

    Most requests are answered before `then` is called, and cost no promise.
    """

    __slots__ = ("_answer", "_error", "_promise", "_respond", "is_answered")

    def __init__(self) -> None:
        self.is_answered = False
        self._answer: A | None = None
        self._error: KafkaError | None = None
        self._promise: Promise[Any] | None = None
        self._respond: Callable[[A], Any] | None = None

    def answer(self, answer: A) -> None:
        """Hand the answer over; dropped if nobody waits any more."""
        assert not self.is_answered, "answered twice"
        self.is_answered = True
        promise = self._promise
        if promise is None:
            self._answer = answer
        elif not promise.done():
            assert self._respond is not None
            try:
                response = self._respond(answer)
            except Exception as error:  # noqa: BLE001 - it is the waiting request that failed.
                promise.set_exception(error)
            else:
                promise.set_result(response)

    def fail(self, error: KafkaError) -> None:
        """There will be no answer, for a reason outside of the group."""
        assert not self.is_answered, "answered twice"
        self.is_answered = True
        if self._promise is None:
            self._error = error
        elif not self._promise.done():
            self._promise.set_exception(error)

    async def wait(self) -> A:
        """The answer, once it is there. To be called once, instead of `then`.

        Raises:
            KafkaError: there is no answer.
        """
        answer = self.then(lambda answer: answer)
        return await answer if isinstance(answer, Promise) else answer

    def then(self, respond: Callable[[A], R]) -> R | Promise[R]:
        """The response made from the answer, or the promise of it. To be called once.

        Cancelling the promise drops the answer and nothing else.

        Raises:
            KafkaError: there is no answer.
        """
        assert self._promise is None
        if self._error is not None:
            raise self._error
        if self.is_answered:
            return respond(self._answer)  # type: ignore[arg-type]  # Answered: None is an A then.
        self._respond = respond
        self._promise = Promise()
        return self._promise
