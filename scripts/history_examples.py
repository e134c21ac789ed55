"""The examples in docs/rebalance-history.md: `make docs` renders its records as the code does."""

import json
import re
from pathlib import Path
from typing import Any, Final

from kohort.groups.history.json_form import parse_text, text_steps
from kohort.groups.history.model import HistoryRecord
from kohort.groups.history.sentence import sentence
from kohort.groups.steps import at_once

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "rebalance-history.md"
RECORDS: Final = ("rebalance", "avoided")
SENTENCES: Final = "sentences"


def renew(text: str) -> str:
    """Return the document with its records, in JSON and in words, as the code writes them now."""
    lines: list[str] = []
    for name in RECORDS:
        record = parse_text(_part(text, name).partition("\n")[2].rpartition("\n```")[0])
        text = text.replace(_part(text, name), _as_json(record))
        lines += [sentence(record), ""]
    return text.replace(_part(text, SENTENCES), "\n".join(["```text", *lines[:-1], "```", ""]))


def _part(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name}: .*-->\n([^<]*)<!-- end of {name} -->", text)
    assert found is not None, name
    return found[1]


def _as_json(record: HistoryRecord) -> str:
    data = _filled(json.loads(at_once(text_steps(record))))
    return f"```json\n{json.dumps(data, indent=2)}\n```\n"


def _filled(data: Any) -> Any:  # noqa: ANN401 - any JSON.
    """Return the data without fields that are null or an empty list."""
    if isinstance(data, dict):
        return {name: _filled(value) for name, value in data.items() if value not in (None, [])}
    return [_filled(item) for item in data] if isinstance(data, list) else data
