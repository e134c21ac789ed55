"""A group that is driven through time, and the records that its history makes of it."""

import json
from typing import Any

from kohort.groups.config import GroupConfig
from kohort.groups.events import Event
from kohort.groups.history.build import build_avoided, build_steps
from kohort.groups.history.facts import AvoidedFacts, RebalanceFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import from_json, text_steps
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    MemberTimeline,
    RebalanceRecord,
)
from kohort.groups.history.moves import NONE_TAKEN, TakenPartitions
from kohort.groups.steps import at_once
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.support.groups.scenario import Scenario


def share(*indexes: int, topic: str = "t") -> bytes:
    partitions = [TopicPartition(topic=topic, partitions=list(indexes))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions), 1)


def owning(*indexes: int, topic: str = "t") -> tuple[tuple[str, bytes], ...]:
    """What a cooperative member offers that holds these partitions."""
    owned = [TopicPartition(topic=topic, partitions=list(indexes))] if indexes else []
    data = ConsumerProtocolSubscription(topics=[topic], owned_partitions=owned)
    return (("cooperative-sticky", encode_versioned(data, 1)),)


class Chronicle(Scenario):
    """A scenario with a history; every record of it survives its JSON form."""

    def __init__(self, config: GroupConfig | None = None, **changes: Any) -> None:  # noqa: ANN401
        self.fold = GroupFold()
        self.taken: TakenPartitions = NONE_TAKEN
        self.records: list[HistoryRecord] = []
        super().__init__(config, **changes)
        self.watch = self.note

    def note(self, answer_or_event: object) -> None:
        event: Event = answer_or_event  # type: ignore[assignment]  # Answers are no handled class.
        self.fold.observe(event, self.now)
        closed, self.fold.closed = self.fold.closed, []
        for facts in closed:
            record: HistoryRecord
            if isinstance(facts, AvoidedFacts):
                record = build_avoided("g", facts)
            else:
                assert isinstance(facts, RebalanceFacts)
                steps = build_steps("g", facts, until_ms=self.ms, taken=self.taken)
                record, self.taken = at_once(steps)
            text = at_once(text_steps(record))
            assert from_json(json.loads(text)) == record
            self.records.append(record)

    def settle_record(self) -> None:
        """Members that have not synced are not waited for any longer."""
        self.fold.settle()
        self.note(None)

    def running(self, *, members_listed: int = 1_000) -> RebalanceRecord:
        """The rebalance that is under way, as it looks now."""
        assert self.fold.open is not None
        steps = build_steps("g", self.fold.open, until_ms=self.ms, members_listed=members_listed)
        return at_once(steps)[0]

    @property
    def rebalances(self) -> list[RebalanceRecord]:
        return [record for record in self.records if isinstance(record, RebalanceRecord)]

    @property
    def avoided_records(self) -> list[AvoidedRecord]:
        return [record for record in self.records if isinstance(record, AvoidedRecord)]

    @property
    def last(self) -> RebalanceRecord:
        return self.rebalances[-1]

    def member(self, member_id: str, record: RebalanceRecord | None = None) -> MemberTimeline:
        """Its timeline in a record, the last one by default."""
        (found,) = [m for m in (record or self.last).members if m.member_id == member_id]
        return found

    # Consumers with real shares.

    def assign(self, shares: dict[str, tuple[int, ...]], *, late: tuple[str, ...] = ()) -> None:
        """All sync, the leader last; `late` do not sync yet."""
        leader = self.classic.roster.leader_id
        assert leader is not None
        for member_id in shares:
            if member_id not in {leader, *late}:
                self.sync(member_id)
        assignments = {member_id: share(*indexes) for member_id, indexes in shares.items()}
        self.sync(leader, assignments=assignments)
        assert self.state == "Stable"

    def eager(self, *shares: tuple[int, ...]) -> list[str]:
        """A stable group of dynamic members with these shares; the first one leads."""
        members = self.completing(len(shares))
        self.assign(dict(zip(members, shares, strict=True)))
        return members

    def cooperative(self, *shares: tuple[int, ...]) -> list[str]:
        """The same group as `eager`, of cooperative members."""
        members = self.completing(len(shares), protocols=owning())
        self.assign(dict(zip(members, shares, strict=True)))
        return members
