"""Records as JSON: the schema of the history topic, the HTTP pages and the command line.

Every field is always present, null if it does not apply, so that a reader needs no defaults.
`from_json` accepts the output of `as_json`, of this version of the broker and of earlier ones with
the same schema; unknown fields are skipped, missing ones get their default.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
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
"""An optional field, only in additional causes."""
_CERTAINTY: Final = "certainty"
"""Optional in members, of which there are many."""


def kind_of(record: HistoryRecord) -> str:
    return _KINDS[record.__class__]


def as_json(record: HistoryRecord, *, without: str = "") -> Json:
    """Return all fields but the named one."""
    return {"schema": SCHEMA, "kind": kind_of(record), **fields_of(record, without)}


def fields_of(value: Any, without: str = "") -> Json:  # noqa: ANN401 - any of the model's classes.
    """Return the fields of a part of a record, but the named one."""
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
    """Read the partitions of a record, which are counts, or of a member, which are not."""
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
"""Readers by the name of the field; numbers, texts and lists of texts need no conversion."""

_READERS_OF_SHARES: Final = _READERS | {
    "members": lambda items: tuple(_made(MemberChange, data) for data in items)
}


def text_steps(record: HistoryRecord) -> Steps[bytes]:
    """Yield steps; return the record as one line of ASCII, with a rebalance's members last."""
    if not isinstance(record, RebalanceRecord):
        return _dump(as_json(record)).encode()
    data = as_json(record, without="members")
    yield
    head = _dump(data)[:-1]
    yield
    parts: list[str] = []
    for start in range(0, len(record.members), SOME):
        members = record.members[start : start + SOME]
        parts.append(",".join([_dump(fields_of(member)) for member in members]))
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
