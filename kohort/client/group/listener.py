"""What a consumer tells its application about its partitions."""

from __future__ import annotations

from collections.abc import Awaitable
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from kohort.client.core.partitions import TopicPartition

Partitions: TypeAlias = AbstractSet[TopicPartition]
Answer: TypeAlias = Awaitable[None] | None
"""Methods may be plain functions or coroutines."""


class RebalanceListener:
    """Derive from it and write what you need; each method may be `def` or `async def`.

    All of them are called within `poll` (or iteration, `getone`, `close`, `unsubscribe`), and may
    use the consumer: commit, seek, pause; not poll. They count as time between polls, so
    max_poll_interval_ms bounds them. Coroutines run in a task of their own: a poll that is
    cancelled leaves them running, and the next one waits for them. Only `stop` may end one.

    One that raises does not stop the rebalance: the first exception is raised by that poll once the
    rebalance is through, or its time is up.
    """

    def on_revoked(self, partitions: Partitions) -> Answer:
        """These will be read by others. They are still owned: what was processed can be committed.

        In an eager group these are all partitions, at the beginning of each rebalance, and may be
        none; in a cooperative one those that move, if there are any.
        """

    def on_assigned(self, partitions: Partitions) -> Answer:
        """These are new, and will be read from now on. Called after each rebalance, if need be with
        no partitions.
        """

    def on_lost(self, partitions: Partitions) -> Answer:
        """These may be read by others already: membership was lost. Nothing can be committed.

        By default as `on_revoked`.
        """
        return self.on_revoked(partitions)


class AiokafkaListener(RebalanceListener):
    """Calls a listener that was written for aiokafka."""

    def __init__(self, listener: Any) -> None:  # noqa: ANN401 - has what aiokafka's base class has.
        self._listener = listener

    def on_revoked(self, partitions: Partitions) -> Answer:
        answer: Answer = self._listener.on_partitions_revoked(partitions)
        return answer

    def on_assigned(self, partitions: Partitions) -> Answer:
        answer: Answer = self._listener.on_partitions_assigned(partitions)
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


async def _wait(answer: Answer) -> None:
    if answer is not None:
        await answer


NO_LISTENER: Final = RebalanceListener()


def listener_from(given: object) -> RebalanceListener:
    """Ours, or one that has the methods of aiokafka's.

    Raises:
        TypeError: neither.
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
    """Java's and aiokafka's names beside ours would never be called, and it would go unnoticed."""
    kind = type(listener)
    for name in ("on_revoked", "on_assigned", "on_lost"):
        theirs = name.replace("on_", "on_partitions_")
        is_written = getattr(kind, name) is not getattr(RebalanceListener, name)
        if hasattr(kind, theirs) and not is_written:
            raise TypeError(
                f"{kind.__name__}.{theirs} is not called; in a RebalanceListener the method is"
                f" {name}"
            )
