"""Records as JSON text: in steps, since a thousand members take milliseconds to write."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kohort.groups.history.json_form import as_json, from_json
from kohort.groups.history.member_text import member_text
from kohort.groups.history.model import HistoryRecord, RebalanceRecord
from kohort.groups.steps import SOME, Steps


def text_steps(record: HistoryRecord) -> Steps[bytes]:
    """Yield steps; return the record as one line of ASCII, with a rebalance's members last."""
    if not isinstance(record, RebalanceRecord):
        return _dump(as_json(record)).encode()
    data = as_json(replace(record, members=()))
    del data["members"]
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
