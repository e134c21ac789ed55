"""Subscription and manual assignment: checked, stored in `Subscription`, and applied by the engine
if the consumer has started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kohort.client.consumer.lifecycle import CLOSE_TIMEOUT_S, Lifecycle
from kohort.client.core.errors import IllegalStateError
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.listener import RebalanceListener, listener_from


class ConsumerSubscription:
    """The methods of `Consumer` for subscription and manual assignment."""

    _subscription: Subscription
    _lifecycle: Lifecycle

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        *,
        broker_pattern: str | None = None,
    ) -> None:
        """Share these topics with the other members of the group; replaces any earlier
        subscription.

        Without a group_id the consumer reads all partitions of the topics itself, from the position
        that auto_offset_reset sets; partitions added later are read from their beginning.

        Args:
            pattern: instead of names, a regular expression; all topics whose whole name matches are
                read, including ones created later.
            broker_pattern: instead of names, a regular expression in RE2's syntax that the broker
                matches; needs group_protocol="consumer".
            listener: notified of rebalances. A listener written for aiokafka works too.

        Raises:
            IllegalStateError: partitions were assigned manually, or a listener was given without a
                group_id, although only groups rebalance.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is not a topic name; pass each name as one argument")
        if not names and pattern is None and broker_pattern is None:
            raise ValueError("subscribe() was given no topics and no pattern")
        if bool(names) + (pattern is not None) + (broker_pattern is not None) != 1:
            raise ValueError("subscribe() takes either topics or a pattern")
        if broker_pattern is not None and self._lifecycle.config.group_protocol != "consumer":
            raise IllegalStateError("broker_pattern needs group_protocol='consumer'")
        self._check_may_subscribe()
        if self._lifecycle.config.group_id is None and listener is not None:
            raise IllegalStateError("without a group_id there are no rebalances to listen to")
        chosen = listener_from(listener)
        if broker_pattern is not None:
            self._subscription.subscribe_broker_pattern(broker_pattern)
        elif pattern is None:
            self._subscription.subscribe(names)
        else:
            self._subscription.subscribe_pattern(re.compile(pattern))
        self._lifecycle.listen(chosen)
        self._apply()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, even if other consumers read them too. There is no group
        assignment; with a group_id, the group's committed offsets are used.

        Raises:
            IllegalStateError: the consumer is subscribed to topics; unsubscribe first.
        """
        self._check_may_subscribe()
        self._subscription.assign(TopicPartition(*tp) for tp in partitions)
        self._apply()

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions in addition to those already assigned manually, whose positions are
        kept.

        Raises:
            IllegalStateError: the consumer is subscribed to topics; unsubscribe first.
        """
        self._check_may_subscribe()
        added = (TopicPartition(*tp) for tp in partitions)
        self.assign({*self._assigned_by_hand(), *added})

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; the others continue unchanged. With auto commit, the
        offsets processed in them are committed.

        Raises:
            IllegalStateError: a partition is not assigned, or the consumer is subscribed to topics.
        """
        self._check_may_subscribe()
        gone = {TopicPartition(*tp) for tp in partitions}
        assigned = self._assigned_by_hand()
        for tp in sorted(gone - assigned):
            raise IllegalStateError(f"{tp.topic}-{tp.partition} was not assigned manually")
        self.assign(assigned - gone)

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group. Raises whatever the rebalance listener raises."""
        if self._lifecycle.engine is None:
            self._subscription.unsubscribe()
        else:
            await self._lifecycle.running().unsubscribe(CLOSE_TIMEOUT_S)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, those that match at present."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        return self._subscription.assigned

    def _check_may_subscribe(self) -> None:
        self._lifecycle.check_open()
        if self._lifecycle.engine is not None:
            self._lifecycle.engine.shutdown.check_not_unsubscribing()

    def _apply(self) -> None:
        if self._lifecycle.engine is not None:
            self._lifecycle.engine.subscribed()

    def _assigned_by_hand(self) -> frozenset[TopicPartition]:
        is_by_hand = self._subscription.kind is SubscriptionKind.MANUAL
        return self._subscription.assigned if is_by_hand else frozenset()
