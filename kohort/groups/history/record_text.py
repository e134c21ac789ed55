"""Descriptions of records, from their JSON, written by this version of the broker or another."""

from collections.abc import Iterator, Mapping
from typing import Any

from kohort.formats.text import shown
from kohort.groups.events import Certainty
from kohort.groups.history.json_form import from_json
from kohort.groups.history.sentence import evidence, sentence
from kohort.groups.history.wording import ClockText


def record_sentence(record: Mapping[str, Any], clock_text: ClockText) -> str:
    """Return the reason in one sentence without a full stop. For a record of a newer broker with
    causes unknown here: that broker's own sentence, or its name of the cause.
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


def record_cause(record: Mapping[str, Any]) -> str:
    """Return the kind of the cause, and if it is not certain how certain it is."""
    trigger = record["trigger"]
    certainty = trigger.get("certainty") or Certainty.CERTAIN.value
    mark = "" if certainty == Certainty.CERTAIN.value else f" ({certainty})"
    return f"{shown(str(trigger['kind']))}{shown(mark)}"


def record_evidence(record: Mapping[str, Any], clock_text: ClockText) -> list[str]:
    """Return the evidence for the sentence, one per line."""
    try:
        lines = evidence(from_json(record), clock_text, is_watched=bool(record.get("observed")))
        return [*lines, *_bounds(record, clock_text)]
    except ValueError as error:
        return [f"the broker is of another version than this command ({error}); see --json"]


def _bounds(record: Mapping[str, Any], clock_text: ClockText) -> Iterator[str]:
    """Describe when a rebalance began, if a watcher does not know it exactly."""
    between = record.get("started_between_ms")
    if between:
        earliest, latest = map(clock_text, between)
        yield f"when it began is not known: between {earliest} and {latest}"
