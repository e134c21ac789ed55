"""Subscription and manual assignment: checked, stored in `Subscription`, and applied by the engine
if the consumer has started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kohort.client.consumer.lifecycle import Lifecycle
from kohort.client.core.errors import IllegalStateError
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.listener import RebalanceListener, listener_from


class Subscribing:
    def __init__(self, subscription: Subscription, lifecycle: Lifecycle) -> None:
        self._subscription = subscription
        self._lifecycle = lifecycle

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener | None,
        broker_pattern: str | None,
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is not a topic name; pass each name as one argument")
        if bool(names) + (pattern is not None) + (broker_pattern is not None) != 1:
            raise ValueError("subscribe() takes either topics or a pattern")
        if broker_pattern is not None and self._lifecycle.config.group_protocol != "consumer":
            raise IllegalStateError("broker_pattern needs group_protocol='consumer'")
        self._check_may_subscribe()
        if self._lifecycle.config.group_id is None and listener is not None:
            raise IllegalStateError("without a group_id there are no rebalances to listen to")
        listener = listener_from(listener)
        if broker_pattern is not None:
            self._subscription.subscribe_broker_pattern(broker_pattern)
        elif pattern is None:
            self._subscription.subscribe(names)
        else:
            self._subscription.subscribe_pattern(re.compile(pattern))
        self._lifecycle.listen(listener)
        self._apply()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_may_subscribe()
        self._subscription.assign(TopicPartition(*tp) for tp in partitions)
        self._apply()

    def assign_more(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_may_subscribe()
        added = (TopicPartition(*tp) for tp in partitions)
        self.assign({*self._assigned_by_hand(), *added})

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_may_subscribe()
        gone = {TopicPartition(*tp) for tp in partitions}
        assigned = self._assigned_by_hand()
        for tp in sorted(gone - assigned):
            raise IllegalStateError(f"{tp.topic}-{tp.partition} was not assigned manually")
        self.assign(assigned - gone)

    async def unsubscribe(self, timeout_s: float) -> None:
        if self._lifecycle.engine is None:
            self._subscription.unsubscribe()
        else:
            await self._lifecycle.running().unsubscribe(timeout_s)

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
