"""Records as JSON: the schema of the history topic, the HTTP pages and the command line.

Every field is always present, null if it does not apply, except `after_ms` and `certainty`, which
may be left out. `from_json` accepts the output of `as_json` of this version and of earlier ones
with the same schema; unknown fields are skipped, missing ones get their default.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeAlias

from kohort.groups.events import Certainty, Evidence, TriggerKind
from kohort.groups.history.model import (
    SCHEMA,
    AssignedRecord,
    AvoidedRecord,
    HistoryRecord,
    LeaderChange,
    MemberChange,
    MemberFate,
    MemberPartitions,
    MemberTimeline,
    PartitionCounts,
    RebalanceOutcome,
    RebalanceRecord,
    Stopped,
    Timeline,
    TriggerRecord,
    Unread,
    WaitedFor,
)
from kohort.groups.history.names import ASSIGNED, AVOIDED, REBALANCE
from kohort.groups.steps import SOME, Steps

Json: TypeAlias = dict[str, Any]

_BLANK_AFTER: Final = "after_ms"
"""A field of causes; left out if None. Only causes in `further_causes` have a value."""
_CERTAINTY: Final = "certainty"
"""A field of members; left out if their `fate` is certain, so that large records stay smaller."""


def kind_of(record: HistoryRecord) -> str:
    return _KINDS[record.__class__]


def as_json(record: HistoryRecord, *, without: str = "") -> Json:
    """Return a record as JSON: all fields except the one named `without`."""
    return {"schema": SCHEMA, "kind": kind_of(record), **fields_of(record, without)}


def member_as_json(member: MemberTimeline) -> Json:
    """Return one of a record's `members` as JSON; `member_text` creates the text faster."""
    return fields_of(member)


def fields_of(value: Any, without: str = "") -> Json:  # noqa: ANN401 - any of the model's classes.
    """Return the fields of a part of a record, except the one named `without`."""
    fields = {name: _plain(getattr(value, name)) for name in value.__slots__ if name != without}
    if fields.get(_BLANK_AFTER, 0) is None:
        del fields[_BLANK_AFTER]
    is_member = isinstance(value, MemberTimeline | MemberChange)
    if is_member and value.certainty is Certainty.CERTAIN:
        del fields[_CERTAINTY]
    return fields


def _plain(value: Any) -> Any:  # noqa: ANN401 - as above.
    if value is None or value.__class__ in _AS_THEY_ARE:
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return fields_of(value)


_AS_THEY_ARE: Final = frozenset({int, str, bool})


def from_json(data: Mapping[str, Any]) -> HistoryRecord:
    """Return the record in `data`.

    Raises:
        ValueError: it has another schema, or is not a record.
    """
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r} is not {SCHEMA}")
    cls = _CLASSES.get(str(data.get("kind")))
    if cls is None:
        raise ValueError(f"unknown kind {data.get('kind')!r}")
    try:
        record: HistoryRecord = _made(cls, data)
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not a record of the history: {error}") from error
    return record


_CLASSES: Final[dict[str, Callable[..., HistoryRecord]]] = {
    REBALANCE: RebalanceRecord,
    AVOIDED: AvoidedRecord,
    ASSIGNED: AssignedRecord,
}
_KINDS: Final[dict[object, str]] = {cls: kind for kind, cls in _CLASSES.items()}


def _made(cls: Callable[..., Any], data: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above.
    readers = _READERS_OF_SHARES if cls is AssignedRecord else _READERS
    values = {
        name: readers.get(name, _as_it_is)(data[name])
        for name in _names(cls)
        if data.get(name) is not None
    }
    return cls(**values)


def _names(cls: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass.
    names = _NAMES.get(cls)
    if names is None:
        names = _NAMES[cls] = tuple(field.name for field in dataclasses.fields(cls))
    return names


_NAMES: Final[dict[object, tuple[str, ...]]] = {}


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 - as above.
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        raise TypeError("an object where a value belongs")
    return value


def _partitions(data: Mapping[str, Any]) -> PartitionCounts | MemberPartitions:
    """Read the field `partitions`: of a record if it has the total `moved`, else of a member."""
    is_total = "moved" in data
    made: PartitionCounts | MemberPartitions
    made = _made(PartitionCounts if is_total else MemberPartitions, data)
    return made


def _enum(cls: type[StrEnum] | type[TriggerKind]) -> Callable[[Any], Any]:
    return cls


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "kind": _enum(TriggerKind),
    "fate": _enum(MemberFate),
    "outcome": _enum(RebalanceOutcome),
    "leader_change": _enum(LeaderChange),
    "certainty": Certainty,
    "candidates": lambda items: tuple(map(TriggerKind, items)),
    "evidence": lambda items: tuple(Evidence(str(data["kind"]), data["ms"]) for data in items),
    "trigger": lambda data: _made(TriggerRecord, data),
    "further_causes": lambda items: tuple(_made(TriggerRecord, data) for data in items),
    "timeline": lambda data: _made(Timeline, data),
    "waited_for": lambda data: _made(WaitedFor, data),
    "stopped": lambda data: _made(Stopped, data),
    "unread": lambda data: _made(Unread, data),
    "partitions": _partitions,
    "members": lambda items: tuple(_made(MemberTimeline, data) for data in items),
}
"""Conversions from JSON by field name; numbers, texts and lists of texts need none."""

_READERS_OF_SHARES: Final = _READERS | {
    "members": lambda items: tuple(_made(MemberChange, data) for data in items)
}


def text_steps(record: HistoryRecord) -> Steps[bytes]:
    """Return the record as JSON in one line of ASCII, in steps; a rebalance's members come last."""
    if not isinstance(record, RebalanceRecord):
        return _dump(as_json(record)).encode()
    data = as_json(record, without="members")
    yield
    head = _dump(data)[:-1]
    yield
    parts: list[str] = []
    for start in range(0, len(record.members), SOME):
        members = record.members[start : start + SOME]
        parts.append(",".join(map(member_text, members)))
        yield
    return f'{head},"members":[{",".join(parts)}]}}'.encode()


def parse_text(text: bytes | str) -> HistoryRecord:
    """Parse a record. Raises ValueError if it is not one."""
    data = json.loads(text)
    if not isinstance(data, Mapping):
        raise ValueError("not an object")  # noqa: TRY004 - to the caller it is bad data.
    return from_json(data)


def _dump(data: Any) -> str:  # noqa: ANN401 - whatever JSON takes.
    return json.dumps(data, separators=(",", ":"))


_BOOLEANS: Final = {False: "false", True: "true"}
_CERTAINTIES: Final = {
    certainty: "" if certainty is Certainty.CERTAIN else f',"certainty":"{certainty.value}"'
    for certainty in Certainty
}


def member_text(member: MemberTimeline) -> str:
    """Return one of a record's `members` as JSON, in ASCII and without spaces: the text that
    `json.dumps` would create, but five times as fast.

    A record may list a thousand members. Inspecting the type of every field costs several times as
    much as writing it, so here each field is written as its known type.
    """
    return (
        f'{{"member_id":{_text(member.member_id)}'
        f',"instance_id":{_text(member.instance_id)}'
        f',"client_id":{_text(member.client_id)}'
        f',"host":{_text(member.host)}'
        f',"client_software_name":{_text(member.client_software_name)}'
        f',"client_software_version":{_text(member.client_software_version)}'
        f',"type":{_text(member.type)}'
        f',"role":{_text(member.role)}'
        f',"told_ms":{_number(member.told_ms)}'
        f',"join_received_ms":{_number(member.join_received_ms)}'
        f',"join_answered_ms":{_number(member.join_answered_ms)}'
        f',"sync_received_ms":{_number(member.sync_received_ms)}'
        f',"sync_answered_ms":{_number(member.sync_answered_ms)}'
        f',"epoch_before":{_number(member.epoch_before)}'
        f',"epoch":{_number(member.epoch)}'
        f',"revoked_ms":{_number(member.revoked_ms)}'
        f',"reached_ms":{_number(member.reached_ms)}'
        f',"completed_ms":{_number(member.completed_ms)}'
        f',"fate":{_text(member.fate)}'
        f',"fate_ms":{_number(member.fate_ms)}{_CERTAINTIES[member.certainty]}'
        f',"replaced_by":{_text(member.replaced_by)}'
        f',"reason":{_text(member.reason)}'
        f',"reason_source":{_text(member.reason_source)}'
        f',"reason_number":{_number(member.reason_number)}'
        f',"reason_text":{_text(member.reason_text)}'
        f',"mode":{_text(member.mode)}'
        f',"stopped_ms":{_number(member.stopped_ms)}'
        f',"stopped_open":{_BOOLEANS[member.stopped_open]}'
        f',"session_timeout_ms":{_number(member.session_timeout_ms)}'
        f',"rebalance_timeout_ms":{_number(member.rebalance_timeout_ms)}'
        f',"partitions":{_partitions_text(member.partitions)}}}'
    )


def _partitions_text(partitions: MemberPartitions) -> str:
    return (
        f'{{"known":{_BOOLEANS[partitions.known]}'
        f',"kept":{partitions.kept}'
        f',"given_up":{_texts(partitions.given_up)}'
        f',"given_up_count":{partitions.given_up_count}'
        f',"gained":{_texts(partitions.gained)}'
        f',"gained_count":{partitions.gained_count}}}'
    )


def _texts(texts: tuple[str, ...]) -> str:
    return f"[{','.join(map(encode_basestring_ascii, texts))}]"


def _text(text: str | None) -> str:
    return "null" if text is None else encode_basestring_ascii(text)


def _number(number: int | None) -> str:
    return "null" if number is None else str(number)
