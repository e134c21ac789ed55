"""Records in words, from their JSON: of this version of the broker or another one."""

from collections.abc import Mapping
from typing import Any

from kohort.broker.core.history.json_form import from_json
from kohort.broker.core.history.sentence import evidence, sentence
from kohort.broker.core.history.wording import ClockText, shown


def told_sentence(record: Mapping[str, Any], clock_text: ClockText) -> str:
    """Why, in one sentence without its full stop. Of a broker that is newer than this, and may know
    causes that are unknown here, its own words, or what it calls the cause.
    """
    try:
        return sentence(from_json(record), clock_text)
    except ValueError:
        said = record.get("sentence")
        if said:
            return shown(str(said))
        trigger = record.get("trigger")
        kind = trigger.get("kind") if isinstance(trigger, Mapping) else None
        return f"rebalanced because of {shown(str(kind))}, of which no more is known here"


def told_evidence(record: Mapping[str, Any], clock_text: ClockText) -> list[str]:
    """What the sentence rests on, a line each."""
    try:
        return evidence(from_json(record), clock_text)
    except ValueError as error:
        return [f"the broker is of another version than this command ({error}); see --json"]
