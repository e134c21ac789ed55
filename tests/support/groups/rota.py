"""A second kind of group, as small as one can be: the first of its members has partition 0 of topic
"t". It shows that only the package of classic groups assumes classic groups. Tests that store its
records need the fixture `rota_codec`, which adds them to the tables of the log's records.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, cast

import pytest

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.runtime.deferred import Deferred
from kohort.groups import encoding
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import Cancel, Schedule, TimerKey
from kohort.groups.events import GroupRestored
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.membership import OffsetRetention
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord, Generation, RecordCodec, RecordHeaders
from kohort.groups.requests import CommitRequest, Now, Ticket
from kohort.protocol.errors import ErrorCode
from tests.support.groups.raw_members import share, subscription


class RotaKind(Enum):
    ROTA = "rota"


ROTA = cast(GroupKind, RotaKind.ROTA)
SESSION_MS = 5_000


class RotaRecord(NamedTuple):
    group_id: str
    epoch: int
    members: tuple[str, ...]


class RotaTombstone(NamedTuple):
    group_id: str


def _encode_value(record: RotaRecord | RotaTombstone) -> bytes | None:
    return None if isinstance(record, RotaTombstone) else json.dumps(record[1:]).encode()


def _decode(key: bytes, value: bytes | None, headers: RecordHeaders) -> DurableRecord:
    assert not headers
    group_id = key[2:].decode()
    if value is None:
        return RotaTombstone(group_id)
    epoch, members = json.loads(value)
    return RotaRecord(group_id, epoch, tuple(members))


CODEC = RecordCodec(
    record_types=(RotaRecord,),
    tombstone_types=(RotaTombstone,),
    key_versions=(99,),
    encode_key=lambda record: b"\0\x63" + record.group_id.encode(),
    encode_value=_encode_value,
    decode=_decode,
    kind=ROTA,
)


@pytest.fixture
def rota_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    for record_type in (*CODEC.record_types, *CODEC.tombstone_types):
        monkeypatch.setitem(encoding._BY_TYPE, record_type, CODEC)
    monkeypatch.setitem(encoding._BY_KEY_VERSION, 99, CODEC)


class Rota:
    """The membership. The first member has the partition; each change of members is an epoch."""

    kind = ROTA

    def __init__(self, group: Group, epoch: int = 0, members: Sequence[str] = ()) -> None:
        self.group_id = group.group_id
        self.outbox = group.outbox
        self.epoch = epoch
        self.members = list(members)
        self.deadlines: dict[str, int] = {}
        self.is_dead = False

    @property
    def record(self) -> RotaRecord:
        return RotaRecord(self.group_id, self.epoch, tuple(self.members))

    # Requests of its own protocol.

    def join(self, member_id: str, ticket: Ticket) -> None:
        """Answered with the epoch when the member is stored."""
        self._change([*self.members, member_id], ticket)

    def heartbeat(self, member_id: str, now_ms: int) -> None:
        self.deadlines[member_id] = now_ms + SESSION_MS
        self.outbox.emit(Schedule(TimerKey("session", member_id), now_ms + SESSION_MS))

    def _change(self, members: Sequence[str], ticket: Ticket | None) -> None:
        record = RotaRecord(self.group_id, self.epoch + 1, tuple(members))
        self.outbox.stage(_RotaWrite(self, record, ticket))

    # What every membership does.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        return not self.members

    def validate_commit(
        self, request: CommitRequest, now: Now, *, transactional: bool
    ) -> ErrorCode:
        if request.generation < 0:
            return ErrorCode.NONE if self.is_empty else ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if request.generation == self.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        is_fenced = member_id is not None and member_epoch != self.epoch
        return ErrorCode.STALE_MEMBER_EPOCH if is_fenced else ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        return frozenset({"t"} if self.members else ())

    def offset_retention(self) -> OffsetRetention:
        return OffsetRetention(self.subscribed_topics())

    has_lost_topics = False

    def forget_topics(self, now: Now) -> None:
        del now

    def restore(
        self, records: Sequence[DurableRecord], now: Now, earlier: Iterable[Generation]
    ) -> None:
        for record in records:
            assert isinstance(record, RotaRecord)
            self.apply(record)
        self.outbox.note(GroupRestored(self.epoch, "consumer", None, {}))

    def apply(self, record: RotaRecord) -> None:
        self.epoch, self.members = record.epoch, list(record.members)

    def start(self, now: Now) -> None:
        for member_id in self.members:
            self.heartbeat(member_id, now.ms)

    def tombstones(self) -> tuple[DurableRecord, ...]:
        return (RotaTombstone(self.group_id),)

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        silent = [
            k.member_id for k in keys if self.deadlines.get(k.member_id, now.ms + 1) <= now.ms
        ]
        for member_id in silent:
            del self.deadlines[member_id]
        if silent:
            self._change([member for member in self.members if member not in silent], None)

    def end(self, error: ErrorCode, now: Now) -> None:
        self.is_dead = True

    def close(self) -> None:
        for member_id in self.deadlines:
            self.outbox.emit(Cancel(TimerKey("session", member_id)))
        self.deadlines.clear()

    def gauges(self) -> Mapping[str, int]:
        return {"rota_members": len(self.members)}

    @property
    def state(self) -> str:
        if self.is_dead:
            return "Dead"
        return "Rotating" if self.members else "Empty"

    def describe(self) -> GroupDescription:
        return GroupDescription(
            self.group_id,
            ROTA,
            self.state,
            "consumer",
            self.epoch,
            "rota",
            member_count=len(self.members),
            is_stable=bool(self.members),
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        return [
            DescribedMember(
                member_id=member_id,
                instance_id=None,
                client_id=f"client of {member_id}",
                client_host="/10.0.0.9",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                assignors=("rota",),
                metadata=subscription("t"),
                assignment=share("t", 0) if number == 0 else share("t"),
            )
            for number, member_id in enumerate(self.members[:count_max])
        ]

    def describe_waiting(self) -> WaitingFor | None:
        return None


@dataclass(eq=False)
class _RotaWrite:
    rota: Rota
    record: RotaRecord
    ticket: Ticket | None

    def make_records(self) -> tuple[DurableRecord, ...]:
        return (self.record,)

    def on_durable(self, now: Now) -> None:
        self.rota.apply(self.record)
        if self.ticket is not None:
            self.rota.heartbeat(self.record.members[-1], now.ms)
            self.rota.outbox.reply(self.ticket, self.record.epoch)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.rota.outbox.reply(ticket, error)


async def join_rota(host: GroupHost, member_id: str, group_id: str = "g") -> Any:  # noqa: ANN401
    """A member joins, of a group that is made if there is none; the answer is its epoch."""
    ticket: Deferred[Any] = Deferred()

    def step(group: Group, now: Now) -> None:
        if group.membership is None:
            group.membership = Rota(group)
        assert isinstance(group.membership, Rota)
        group.membership.join(member_id, ticket)

    host.submit(group_id, Command(step, ticket, creates_group=True))
    return await ticket


async def convert_to_rota(host: GroupHost, *members: str, group_id: str = "g") -> ErrorCode:
    """The group's membership becomes a rota of these members; returns how that ended."""
    ticket: Deferred[ErrorCode] = Deferred()

    def step(group: Group, now: Now) -> None:
        rota = Rota(group, group.describe().generation + 1, members)
        answers = Answers(ticket, ErrorCode.NONE, lambda error: error)
        group.convert(rota, (rota.record,), answers)

    host.submit(group_id, Command(step, ticket, is_exclusive=True))
    return await ticket
