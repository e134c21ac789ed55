"""Records of the history in words, with the reader's own time of day."""

from datetime import datetime
from typing import Any

from kohort.broker.core.history.json_form import from_json
from kohort.broker.core.history.sentence import evidence, sentence
from kohort.broker.core.history.wording import ClockText, shown

Json = dict[str, Any]


def local_clock(now_ms: int) -> ClockText:
    """How moments are written: the time of day here, with the date if that is not today's."""
    today = _local(now_ms).date()

    def text(wall_ms: int) -> str:
        at = _local(wall_ms)
        return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"

    return text


def _local(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1_000).astimezone()


def told_sentence(record: Json, clock_text: ClockText) -> str:
    """Why, in one sentence without its full stop. Of a broker that is newer than this, and may know
    causes that are unknown here, its own words.
    """
    try:
        return sentence(from_json(record), clock_text)
    except ValueError:
        return shown(str(record.get("sentence")))


def told_evidence(record: Json, clock_text: ClockText) -> list[str]:
    """What the sentence rests on, a line each."""
    try:
        return evidence(from_json(record), clock_text)
    except ValueError as error:
        return [f"the broker is of another version than this command ({error}); see --json"]
