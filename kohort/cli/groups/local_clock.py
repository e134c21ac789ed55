"""The reader's own time of day, for records of the history in words."""

from datetime import datetime

from kohort.groups.history.wording import ClockText


def local_clock(now_ms: int) -> ClockText:
    """How moments are written: the time of day here, with the date if that is not today's."""
    today = _local(now_ms).date()

    def text(wall_ms: int) -> str:
        at = _local(wall_ms)
        return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M:%S}"

    return text


def _local(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1_000).astimezone()
