"""The page as text: one file that needs nothing beside it, no script, no network."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kohort.pipeline.report import plots
from kohort.pipeline.report.contents import Contents

TEMPLATE: Final = "page.html.j2"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def render(contents: Contents, source: str, made_at: datetime | None = None) -> str:
    """HTML. Names of groups and members are escaped, whatever is in them."""
    environment = Environment(
        loader=PackageLoader("pipeline", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": seconds, "duration": duration}
    moment = made_at or datetime.now(UTC)
    return environment.get_template(TEMPLATE).render(
        contents=contents,
        source=source,
        made_at=moment.strftime("%Y-%m-%d %H:%M"),
        plots=plots,
    )


def seconds(ms: int | None) -> str:
    """The duration in seconds, as a table shows it."""
    return "?" if ms is None else f"{ms / 1000:,.1f}"


def duration(ms: int | None) -> str:
    """The duration as people say it."""
    if ms is None:
        return "a time that has not ended"
    if ms < _MINUTE_MS:
        return f"{ms / 1000:.1f} s"
    if ms < _HOUR_MS:
        return f"{ms / _MINUTE_MS:.0f} min"
    return f"{ms / _HOUR_MS:.1f} h"
