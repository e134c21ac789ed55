"""The schema of rebalance history records: docs/rebalance-history.md, schema 1.

Fields added by newer brokers are ignored; fields that older brokers did not write are null.
"""

from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from kohort.groups.events import Evidence
from kohort.groups.history.model import AvoidedRecord, MemberTimeline, RebalanceRecord
from kohort.insight.tables.columns import FLAG, TEXT, TEXTS, WHOLE, WHOLES, ListOf, Type, struct

_SIMPLE: Final = {bool: FLAG, int: WHOLE}
"""Column types of scalar fields; other scalars, such as enumerations, are strings in JSON."""


def _type(hint: Any) -> Type:  # noqa: ANN401 - the type of a field.
    if isinstance(hint, UnionType):
        (hint,) = set(get_args(hint)) - {NoneType}
    if get_origin(hint) is tuple:
        return ListOf(_type(get_args(hint)[0]))
    return struct(**_fields(hint)) if is_dataclass(hint) else _SIMPLE.get(hint, TEXT)


def _fields(record: Any) -> dict[str, Type]:  # noqa: ANN401 - a dataclass.
    fields = {name: _type(hint) for name, hint in get_type_hints(record).items()}
    if record is MemberTimeline:
        # Only in records of `kohort watch`.
        fields |= {"candidates": TEXTS, "evidence": ListOf(_type(Evidence))}
    return fields


EVENT: Final = struct(
    schema=WHOLE,
    kind=TEXT,
    **(_fields(RebalanceRecord) | _fields(AvoidedRecord)),
    # Only in records of `kohort watch`. `observed`: its sources (log, polls), and partition and
    # offset of the record in __consumer_offsets that completed the rebalance.
    cluster=TEXT,
    observed=struct(by=TEXTS, partition=WHOLE, offset=WHOLE),
    started_between_ms=WHOLES,
    coordinator_changed_ms=WHOLE,
)
"""Rebalances and avoided rebalances have one schema, because they are in one topic."""
