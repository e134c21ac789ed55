"""The examples of docs/rebalance-history.md, made by the code that makes records.

A small group goes through what the document speaks of, on a clock that this script moves; `make
docs` puts what its history says between the marks.
"""

import itertools
import json
from pathlib import Path
from typing import Final

from kohort.groups.classic.group import ClassicGroup
from kohort.groups.classic.timers import JOIN_TIMER
from kohort.groups.config import GroupConfig
from kohort.groups.effects import Append, Note, Replies, Reply, TimerKey
from kohort.groups.history.build import build_avoided, build_steps
from kohort.groups.history.fold import AvoidedFacts, GroupFold
from kohort.groups.history.model import HistoryRecord
from kohort.groups.history.sentence import evidence, sentence
from kohort.groups.history.text import text_steps
from kohort.groups.reasons import NO_REASON, StatedReason, state_reason
from kohort.groups.requests import JoinRequest, JoinResult, Now, SyncRequest
from kohort.groups.steps import at_once
from kohort.protocol.codec import encode_versioned
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "rebalance-history.md"
MARKS: Final = {
    name: (f"<!-- {name}: made by `make docs` -->\n", f"<!-- end of {name} -->\n")
    for name in ("rebalance", "avoided", "sentences")
}

_WALL_MS: Final = 1_767_362_400_000
_TOPIC: Final = "payments"
_METADATA: Final = encode_versioned(ConsumerProtocolSubscription(topics=[_TOPIC]), 1)


class _Story:
    """A group "billing" and its history."""

    def __init__(self) -> None:
        numbers = itertools.count(1)
        self.ms = 0
        self.fold = GroupFold()
        self.records: list[HistoryRecord] = []
        self.answers: list[tuple[object, object]] = []
        self.group = ClassicGroup(
            "billing",
            GroupConfig(initial_rebalance_delay_ms=3_000),
            new_member_id=lambda prefix: f"{prefix}-{next(numbers):08x}",
        )

    @property
    def now(self) -> Now:
        return Now(self.ms, _WALL_MS + self.ms)

    def carry_out(self) -> None:
        is_appending = True
        while is_appending:
            is_appending = False
            for effect in self.group.take_effects():
                match effect:
                    case Reply(ticket, body):
                        self.answers.append((ticket, body))
                    case Replies(replies):
                        self.answers += [(reply.ticket, reply.body) for reply in replies]
                    case Note(event):
                        self.fold.observe(event, self.now)
                    case Append():
                        self.ms += 4
                        self.group.on_appended(self.now)
                        is_appending = True
                    case _:
                        pass
        for closed in self.fold.closed:
            if isinstance(closed, AvoidedFacts):
                self.records.append(build_avoided("billing", closed))
            else:
                steps = build_steps("billing", closed, until_ms=self.ms)
                self.records.append(at_once(steps)[0])
        self.fold.closed.clear()

    def join(self, member_id: str, client: str, reason: StatedReason = NO_REASON) -> str:
        """Returns the id to go on with."""
        ticket = object()
        request = JoinRequest(
            member_id=member_id,
            instance_id=None,
            client_id=client,
            client_host=f"/10.0.0.{client[-1]}",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=(("range", _METADATA),),
            reason=reason,
        )
        self.group.join(request, ticket, self.now)
        self.carry_out()
        found = [body for asked, body in self.answers if asked is ticket]
        answer = found[0] if found else None
        return answer.member_id if isinstance(answer, JoinResult) else member_id

    def sync(self, member_id: str, shares: dict[str, list[int]]) -> None:
        assignments = {
            member: encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=[TopicPartition(topic=_TOPIC, partitions=indexes)]
                ),
                1,
            )
            for member, indexes in shares.items()
        }
        request = SyncRequest(member_id, None, self.group.generation, assignments=assignments)
        self.group.sync(request, object(), self.now)
        self.carry_out()

    def expire(self, key: TimerKey) -> None:
        """Time passes until this comes due."""
        member = self.group.roster.get(key.member_id)
        self.ms = self.group.data.deadlines[key] if member is None else member.session_deadline_ms
        self.group.on_deadlines([key], self.now)
        self.carry_out()

    def heartbeat(self, member_id: str) -> None:
        self.group.heartbeat(member_id, None, self.group.generation, self.ms)
        self.carry_out()


def records() -> list[HistoryRecord]:
    """Three members; one of them dies, the others take over; then the leader is restarted."""
    story = _Story()
    ids = []
    for client in ("billing-1", "billing-2", "billing-3"):
        ids.append(story.join("", client))
        story.join(ids[-1], client)
    leader, follower, silent = ids
    story.expire(JOIN_TIMER)
    story.expire(JOIN_TIMER)
    shares = {leader: [0, 1], follower: [2, 3], silent: [4, 5]}
    for member_id in (follower, silent, leader):
        story.sync(member_id, shares)
    for _ in range(2):
        story.ms += 20_000
        story.heartbeat(leader)
        story.heartbeat(follower)
    story.expire(TimerKey("session", silent))
    story.ms += 300
    story.heartbeat(leader)
    story.ms += 76
    story.join(leader, "billing-1", state_reason(JoinReason.GROUP_REBALANCING, None))
    story.ms += 1524
    story.heartbeat(follower)
    story.ms += 1376
    story.join(follower, "billing-2", state_reason(0, "group is already rebalancing"))
    story.ms += 10
    story.sync(follower, {})
    story.ms += 20
    story.sync(leader, {leader: [0, 1, 4], follower: [2, 3, 5]})
    story.ms += 36000
    story.join(leader, "billing-1", state_reason(JoinReason.RESTART, None))
    return story.records


def examples() -> dict[str, str]:
    """What belongs between each pair of marks."""
    _, rebalance, avoided = records()
    lines = [sentence(rebalance), *(f"  {line}" for line in evidence(rebalance)), ""]
    lines += [sentence(avoided), *(f"  {line}" for line in evidence(avoided))]
    return {
        "rebalance": _as_json(rebalance),
        "avoided": _as_json(avoided),
        "sentences": "\n".join(["```text", *lines, "```", ""]),
    }


def _as_json(record: HistoryRecord) -> str:
    data = json.loads(at_once(text_steps(record)))
    return f"```json\n{json.dumps(data, indent=2)}\n```\n"


def renew(text: str) -> str:
    """The document with the examples as they are now."""
    for name, example in examples().items():
        begin, end = MARKS[name]
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{example}{end}{after}"
    return text
