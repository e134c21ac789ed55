"""The rebalance listener: reports gained and lost partitions to the application."""

from __future__ import annotations

from collections.abc import Awaitable
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from kohort.client.core.partitions import TopicPartition

Partitions: TypeAlias = AbstractSet[TopicPartition]
CallbackResult: TypeAlias = Awaitable[None] | None
"""The result of a listener's method, which may be a plain function or a coroutine function."""


class RebalanceListener:
    """Base class of listeners: override what you need; each method may be `def` or `async def`.

    All methods are called within `poll` (or iteration, `getone`, `close`, `unsubscribe`). They may
    use the consumer: commit, seek, pause; but not poll. Their run time counts as time between
    polls, so max_poll_interval_ms bounds it. Coroutines run in a task of their own: cancelling a
    poll leaves them running, and the next poll waits for them. Only `stop` may cancel them.

    An exception does not stop the rebalance: that poll raises the first exception once the
    rebalance is complete, or the poll has timed out.
    """

    def on_revoked(self, partitions: Partitions) -> CallbackResult:
        """Called before partitions go to other members. They are still owned: commit what was
        processed.

        In an eager group these are all partitions, at the beginning of each rebalance, possibly
        none; in a cooperative group only those that move, if there are any.
        """

    def on_assigned(self, partitions: Partitions) -> CallbackResult:
        """Called with the new partitions, maybe none, after each rebalance."""

    def on_lost(self, partitions: Partitions) -> CallbackResult:
        """Called when membership was lost: other members may already read the partitions, and
        nothing can be committed.

        Calls `on_revoked` by default.
        """
        return self.on_revoked(partitions)


class AiokafkaListener(RebalanceListener):
    def __init__(self, listener: Any) -> None:  # noqa: ANN401 - duck-typed as aiokafka's base class.
        self._listener = listener

    def on_revoked(self, partitions: Partitions) -> CallbackResult:
        answer: CallbackResult = self._listener.on_partitions_revoked(partitions)
        return answer

    def on_assigned(self, partitions: Partitions) -> CallbackResult:
        answer: CallbackResult = self._listener.on_partitions_assigned(partitions)
        return answer


class BothListeners(RebalanceListener):
    """Calls two listeners, one after the other."""

    def __init__(self, first: RebalanceListener, second: RebalanceListener) -> None:
        self._first = first
        self._second = second

    async def on_revoked(self, partitions: Partitions) -> None:
        await _wait(self._first.on_revoked(partitions))
        await _wait(self._second.on_revoked(partitions))

    async def on_assigned(self, partitions: Partitions) -> None:
        await _wait(self._first.on_assigned(partitions))
        await _wait(self._second.on_assigned(partitions))

    async def on_lost(self, partitions: Partitions) -> None:
        await _wait(self._first.on_lost(partitions))
        await _wait(self._second.on_lost(partitions))


async def _wait(answer: CallbackResult) -> None:
    if answer is not None:
        await answer


NO_LISTENER: Final = RebalanceListener()


def listener_from(given: object) -> RebalanceListener:
    """Return a `RebalanceListener`, wrapping one that has aiokafka's methods.

    Raises:
        TypeError: it is not a listener of either kind.
    """
    if given is None:
        return NO_LISTENER
    if isinstance(given, type):
        raise TypeError(f"a listener must be an object, not the class {given.__name__} itself")
    if isinstance(given, RebalanceListener):
        _check_names(given)
        return given
    if hasattr(given, "on_partitions_revoked") and hasattr(given, "on_partitions_assigned"):
        return AiokafkaListener(given)
    raise TypeError(
        f"a listener must derive from RebalanceListener, {type(given).__name__} does not"
    )


def _check_names(listener: RebalanceListener) -> None:
    """Refuse Java's and aiokafka's method names, which would silently never be called."""
    kind = type(listener)
    for name in ("on_revoked", "on_assigned", "on_lost"):
        theirs = name.replace("on_", "on_partitions_")
        is_written = getattr(kind, name) is not getattr(RebalanceListener, name)
        if hasattr(kind, theirs) and not is_written:
            raise TypeError(
                f"{kind.__name__}.{theirs} is not called; in a RebalanceListener the method is"
                f" {name}"
            )
