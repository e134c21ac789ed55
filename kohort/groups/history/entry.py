"""The records of the topic __rebalance_history, which brokers and watchers write."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from kohort.groups.history.names import AVOIDED, SCHEMA, RebalanceOutcome
from kohort.protocol.records.record import Record


class Entry(NamedTuple):
    group_id: str
    kind: str
    sequence: int
    text: bytes
    wall_ms: int
    generation: int | None = None
    """The generation of a rebalance; None if it ended without one."""


def record_of(entry: Entry) -> Record:
    """Encode an entry: the key is the group id, headers allow sorting without parsing the text."""
    return Record(
        entry.text,
        key=entry.group_id.encode("utf-8", "surrogatepass"),
        headers=(
            ("schema", b"%d" % SCHEMA),
            ("kind", entry.kind.encode()),
            ("sequence", b"%d" % entry.sequence),
            *([] if entry.generation is None else [("generation", b"%d" % entry.generation)]),
        ),
        timestamp=entry.wall_ms,
    )


def entry_of(record: Record) -> Entry | None:
    """Return the entry; None unless the record has a key, a value and headers of this schema."""
    headers = dict(record.headers)
    try:
        if record.key is None or record.value is None or int(headers["schema"] or 0) != SCHEMA:
            return None
        return Entry(
            group_id=record.key.decode("utf-8", "surrogatepass"),
            kind=(headers["kind"] or b"").decode(),
            sequence=int(headers["sequence"] or 0),
            text=bytes(record.value),
            wall_ms=record.timestamp,
            generation=int(generation) if (generation := headers.get("generation")) else None,
        )
    except (KeyError, ValueError):
        return None


ObservedKey: TypeAlias = tuple[object, ...]


def observed_key(record: Mapping[str, Any]) -> ObservedKey | None:
    """Return a key that identifies a watched rebalance in the records of all watchers; None if a
    broker wrote the record.

    Sequence numbers differ between watchers that started at different times. The partition and
    offset in __consumer_offsets at which the rebalance became known are the same for all.
    """
    observed = record.get("observed")
    if not isinstance(observed, Mapping):
        return None
    # Several records may have the same place: superseded rebalances differ in the generation before
    # them, avoided ones in their member.
    apart: tuple[object, ...]
    if record.get("kind") == AVOIDED:
        apart = (AVOIDED, (record.get("trigger") or {}).get("member_id"))
    else:
        apart = (
            record.get("outcome") == RebalanceOutcome.SUPERSEDED.value,
            record.get("previous_generation"),
        )
    place = observed.get("partition"), observed.get("offset")
    return record.get("group"), *place, *apart
