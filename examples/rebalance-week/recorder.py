"""Keeps the history of a simulated group as the broker would: its own code makes the records."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TextIO

from kohort.groups.events import Event
from kohort.groups.history.build import build_avoided, build_steps
from kohort.groups.history.facts import AvoidedFacts, RebalanceFacts
from kohort.groups.history.fold import SETTLE_MS, Closed, GroupFold
from kohort.groups.history.json_form import as_json
from kohort.groups.history.model import HistoryRecord
from kohort.groups.history.moves import NONE_TAKEN
from kohort.groups.requests import Now
from kohort.groups.steps import at_once
from kohort.insight.advisor.shares import Encoding, Share
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)


class ConsumerWire(Encoding):
    """Subscriptions and assignments as consumers write them, so that the history can read them."""

    protocol_type: str = "consumer"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def subscription(self, topics_version: int, owned: Share, generation: int) -> bytes:
        return _subscription(self._topic, topics_version, owned, generation if owned else -1)

    def assignment(self, share: Share) -> bytes:
        return _assignment(self._topic, share)


def _partitions(topic: str, share: Share) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=sorted(share))] if share else []


@cache
def _subscription(topic: str, topics_version: int, owned: Share, generation: int) -> bytes:
    topics = [topic, *(f"{topic}-{number}" for number in range(1, topics_version + 1))]
    said = ConsumerProtocolSubscription(
        topics=topics, owned_partitions=_partitions(topic, owned), generation_id=generation
    )
    return encode_versioned(said, 3)


@cache
def _assignment(topic: str, share: Share) -> bytes:
    given = ConsumerProtocolAssignment(assigned_partitions=_partitions(topic, share))
    return encode_versioned(given, 1)


class Recorder:
    """Give `observe` to a replay; `records` are complete after `end`."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._fold = GroupFold()
        self._taken = NONE_TAKEN
        self._settles_at_ms = 0
        self.records: list[dict[str, Any]] = []

    def observe(self, event: Event, now_ms: int) -> None:
        fold = self._fold
        if fold.is_settling and now_ms >= self._settles_at_ms:
            fold.settle()
            self._take(self._settles_at_ms)
        was_settling = fold.is_settling
        fold.observe(event, Now(now_ms, now_ms))
        if fold.is_settling and not was_settling:
            self._settles_at_ms = now_ms + SETTLE_MS
        self._take(now_ms)

    def end(self) -> None:
        """Nothing more will happen."""
        self._fold.settle()
        self._take(self._settles_at_ms)

    def write(self, output: TextIO) -> None:
        lines = (json.dumps(record, separators=(",", ":")) + "\n" for record in self.records)
        output.writelines(lines)

    def _take(self, now_ms: int) -> None:
        closed, self._fold.closed = self._fold.closed, []
        for facts in closed:
            self.records.append(as_json(self._build(facts, now_ms)))

    def _build(self, facts: Closed, now_ms: int) -> HistoryRecord:
        if isinstance(facts, AvoidedFacts):
            return build_avoided(self._group, facts)
        assert isinstance(facts, RebalanceFacts), "no group here is a share group"
        steps = build_steps(self._group, facts, until_ms=now_ms, taken=self._taken)
        record, self._taken = at_once(steps)
        return record
