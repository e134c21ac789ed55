"""Parses records of the history topic, or lines of a file, into events or rejections."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from kohort.groups.history.names import ASSIGNED, AVOIDED, REBALANCE, SCHEMA
from kohort.insight.event_rows import MOMENT_MAX_MS, begun_ms
from kohort.insight.tables.columns import FLAG, TEXT, WHOLE, ListOf, Struct, Type
from kohort.insight.tables.event import EVENT

SEQUENCE_MAX: Final = 2**53
"""The largest integer that every JSON reader represents exactly."""


class Record(NamedTuple):
    """A record of the history topic, or a line of a file."""

    cluster_id: str
    topic: str
    """The topic's or the file's name."""
    partition: int
    offset: int
    """The offset; for a file, the line number from 0."""
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Read:
    record: Record
    text: str
    event: dict[str, Any]
    """The event with exactly the fields of EVENT; missing ones are None."""

    @property
    def key(self) -> tuple[str, str, int]:
        """The key of the event: cluster, group and sequence."""
        return self.record.cluster_id, self.event["group"], self.event["sequence"]


@dataclass(frozen=True, slots=True)
class Refused:
    record: Record
    reason: str
    """One of the reasons of the table `quarantine`."""
    detail: str


class _TypeError(Exception):
    """A value has another type than its field."""


def read(record: Record) -> Read | Refused:
    """Return the record's event, or the first error in the record."""
    if record.value is None:
        return Refused(record, "no_value", "the record has no value")
    text = ""
    try:
        text = record.value.decode()
        content = (
            json.loads(text, parse_constant=_reject_constant) if text.lstrip()[:1] == "{" else None
        )
    except (ValueError, RecursionError):
        content = None
    if content is None:
        return Refused(record, "not_json", "not a JSON object")
    version = content.get("schema")
    if type(version) is int and version != SCHEMA:
        detail = f"schema {version}, only {SCHEMA} is supported"
        return Refused(record, "schema_version", detail)
    try:
        event = _TYPED(content)
    except _TypeError:
        return Refused(record, "not_of_the_schema", _NOT_OF_THE_SCHEMA)
    wrong = _wrong(event)
    return Read(record, text, event) if wrong is None else Refused(record, *wrong)


def group_of(value: bytes | None) -> str:
    """Return the group that `read` would find in a record's value; empty without one."""
    try:
        content = json.loads(value or b"")
        return _text(content["group"]) or ""
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""


def typed(text: str) -> dict[str, Any]:
    """Return an event from its text stored in a table."""
    event: dict[str, Any] = _TYPED(json.loads(text))
    return event


_NOT_OF_THE_SCHEMA: Final = "a field's value is of another type, or out of range"


def _wrong(event: dict[str, Any]) -> tuple[str, str] | None:
    """Return reason and detail of the first error; None if the event is valid."""
    kind = event["kind"]
    missing = _missing(event)
    if event["schema"] is None or kind is None:
        return "missing_field", missing or "schema or kind"
    if kind not in {REBALANCE, AVOIDED, ASSIGNED}:
        return "unknown_kind", f"kind {kind}"
    if missing is not None:
        return "missing_field", missing
    begun = begun_ms(event)
    if begun is None or not 0 <= begun <= MOMENT_MAX_MS:
        return "not_of_the_schema", _NOT_OF_THE_SCHEMA
    if not 1 <= event["sequence"] <= SEQUENCE_MAX:
        return "not_of_the_schema", _NOT_OF_THE_SCHEMA
    return None


def _missing(event: dict[str, Any]) -> str | None:
    if event["group"] is None:
        return "group"
    if event["sequence"] is None:
        return "sequence"
    if (event["trigger"] or {}).get("kind") is None:
        return "trigger.kind"
    if begun_ms(event) is None:
        return "started_at_ms or at_ms"
    if event["kind"] == REBALANCE and event["outcome"] is None:
        return "outcome"
    return None


def _reject_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which are invalid JSON."""
    raise ValueError(name)


_Typed: TypeAlias = Callable[[Any], Any]


def _typed(kind: Type) -> _Typed:
    """Return a function that converts a JSON value to this type."""
    if isinstance(kind, Struct):
        return _typed_struct(kind)
    if isinstance(kind, ListOf):
        return _typed_array(kind)
    return {TEXT: _text, WHOLE: _whole, FLAG: _flag}[kind]


def _typed_struct(kind: Struct) -> _Typed:
    converters = {name: _typed(field) for name, field in kind.fields}
    empty: dict[str, Any] = dict.fromkeys(converters)

    def struct(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON.
        if value is None:
            return None
        if type(value) is not dict:
            raise _TypeError
        typed = empty.copy()
        # Skip null fields, which are the majority in an event.
        for name, item in value.items():
            if item is not None and name in converters:
                typed[name] = converters[name](item)
        return typed

    return struct


def _typed_array(kind: ListOf) -> _Typed:
    convert = _typed(kind.of)

    def array(value: Any) -> list[Any] | None:  # noqa: ANN401 - JSON.
        if value is None:
            return None
        if type(value) is not list:
            raise _TypeError
        return [None if item is None else convert(item) for item in value]

    return array


def _text(value: Any) -> str | None:  # noqa: ANN401 - JSON.
    """Return text as it is, and other values as JSON: newer brokers may write an object."""
    if type(value) is not str:
        return None if value is None else json.dumps(value, separators=(",", ":"))
    # Replace lone surrogates, which JSON allows and no file can store.
    return value if value.isascii() else value.encode(errors="replace").decode()


def _whole(value: Any) -> int | None:  # noqa: ANN401 - JSON.
    if value is not None and (type(value) is not int or not -(2**63) <= value < 2**63):
        raise _TypeError
    return value


def _flag(value: Any) -> bool | None:  # noqa: ANN401 - JSON.
    if value is not None and type(value) is not bool:
        raise _TypeError
    return value


_TYPED: Final = _typed(EVENT)
