"""The plots, as SVG that stands in the page itself. Text stays text: it can be searched."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import matplotlib as mpl

mpl.use("svg")
import matplotlib.dates as mdates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kohort.pipeline.report.labels import Dot, place

Row = dict[str, Any]

INK: Final = "#24323f"
GRID: Final = "#d8dee4"
RECORDED: Final = "#c0392b"
FRONT: Final = "#1f6f8b"
OTHERS: Final = "#b8c4ce"
STOPPED: Final = "#e08e2b"
BY_CAUSE: Final = {
    "member_added": "#1f6f8b",
    "static_added": "#3a9bbd",
    "static_replaced": "#7fb8cc",
    "member_left": "#6c8f3d",
    "removed_by_admin": "#98b36a",
    "session_expired": "#c0392b",
    "new_member_expired": "#d9715f",
    "sync_expired": "#8e2b1f",
    "leader_rejoined": "#7a5aa6",
    "protocols_changed": "#a184c9",
    "forced_by_reason": "#5b3f86",
}
SPREAD_MAX: Final = 20
"""Times the smallest value, up to which an axis counts evenly."""
DAYS_NAMED: Final = 9
"""So many at most have their names below the axis."""
STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kohort",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
}


def colour(kind: str) -> str:
    """The colour of a cause, the same in all plots."""
    return BY_CAUSE.get(kind, "#7f8c8d")


def causes(rows: list[Row]) -> str:
    """Rebalances by cause, and the stopped time that each has cost."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.9 + 0.34 * len(rows)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        names = [row["trigger_kind"].replace("_", " ") for row in rows][::-1]
        colours = [colour(row["trigger_kind"]) for row in rows][::-1]
        counts = [row["rebalance_count"] for row in rows][::-1]
        stops = [(row["stopped_total_ms"] or 0) / 1000 for row in rows][::-1]
        for axes, values, label in (
            (left, counts, "rebalances"),
            (right, stops, "seconds stopped"),
        ):
            bars = axes.barh(names, values, color=colours)
            axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=9)
            axes.set_xlabel(label)
            axes.margins(x=0.18)
            axes.grid(visible=False, axis="y")
        return _svg(figure)


def by_day(rows: list[Row]) -> str:
    """How many rebalances a day had, and how long members stood still."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 2.6), layout="constrained")
        axes = figure.subplots()
        moments = [datetime.combine(row["day"], datetime.min.time()) for row in rows]
        days = [_number(moment) for moment in moments]
        axes.bar(days, [row["stopped_ms"] / 1000 for row in rows], color=STOPPED, width=0.7)
        axes.set_ylabel("seconds stopped", color=STOPPED)
        axes.grid(visible=False, axis="x")
        counts = axes.twinx()
        counts.plot(days, [row["rebalances"] for row in rows], color=FRONT, marker="o")
        counts.set_ylabel("rebalances", color=FRONT)
        counts.set_ylim(bottom=0)
        counts.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        counts.grid(visible=False)
        counts.spines["right"].set_visible(True)
        # A single day is a bar among days, and not the whole of the plot.
        aside = max(timedelta(hours=14), timedelta(days=2.5) - (moments[-1] - moments[0]) / 2)
        _dates(axes, moments[0] - aside, moments[-1] + aside, "%a %d %b")
        step = max(1, math.ceil((moments[-1] - moments[0]).days / DAYS_NAMED))
        axes.xaxis.set_major_locator(mdates.DayLocator(interval=step))  # type: ignore[no-untyped-call]
        return _svg(figure)


def storm(events: list[Row]) -> str:
    """The rebalances of a storm along its time: how long each took, and what it cost."""
    with mpl.rc_context(STYLE):
        kinds = list(dict.fromkeys(row["trigger_kind"] for row in events))
        figure = Figure(figsize=(9.0, 1.3 + 0.32 * len(kinds)), layout="constrained")
        axes = figure.subplots()
        span = events[-1]["started_at"] - events[0]["started_at"]
        least = max(span / 250, timedelta(milliseconds=200))
        for row in events:
            took = max(timedelta(milliseconds=row["duration_ms"] or 0), least)
            place = kinds.index(row["trigger_kind"])
            axes.barh(
                place,
                took,
                left=row["started_at"],
                height=0.62,
                color=colour(row["trigger_kind"]),
            )
        axes.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        end = max(
            row["started_at"] + timedelta(milliseconds=row["duration_ms"] or 0) for row in events
        )
        _dates(axes, events[0]["started_at"] - least, end + 2 * least, "%H:%M:%S")
        return _svg(figure)


def front(rows: list[Row]) -> str:
    """All settings that were tried: rebalances against stopped time, larger where a crash is
    noticed later. The front is numbered as the list below it.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        axes = figure.subplots()
        others = [row for row in rows if not row["is_recorded"] and not row["is_on_front"]]
        chosen = numbered(rows)
        recorded = [row for row in rows if row["is_recorded"]]
        for group, paint, name, level in (
            (others, OTHERS, "tried", 1),
            (chosen, FRONT, "worth a thought", 3),
            (recorded, RECORDED, "as recorded", 4),
        ):
            axes.scatter(
                [row["rebalances"] for row in group],
                [row["stopped_ms"] / 1000 for row in group],
                s=[_area(row["notice_ms"]) for row in group],
                color=paint,
                alpha=1.0 if level > 1 else 0.5,
                edgecolors="white",
                linewidths=0.6,
                zorder=level,
                label=name,
                # Those of nothing at all lie on the axis, and are to be seen whole.
                clip_on=False,
            )
        axes.set_xlabel("rebalances")
        axes.set_ylabel("seconds stopped, all members")
        _spread(axes, "x", [row["rebalances"] for row in rows])
        _spread(axes, "y", [row["stopped_ms"] / 1000 for row in rows])
        legend = figure.legend(loc="outside upper left", ncols=3, frameon=False)
        for handle in legend.legend_handles:
            handle.set_sizes([50])  # type: ignore[union-attr]  # They are scatters.
        _number_dots(figure, axes, chosen, recorded)
        return _svg(figure)


def _spread(axes: Axes, which: Literal["x", "y"], values: list[float]) -> None:
    """By powers of ten where a few large values would press all others into a corner."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    limit = axes.set_xlim if which == "x" else axes.set_ylim
    scale = axes.set_xscale if which == "x" else axes.set_yscale
    lowest, highest = min(values), max(values)
    if highest <= SPREAD_MAX * max(lowest, 1):
        # Dots of nothing are whole, and cover no number of the axis.
        limit(-0.06 * (highest or 1), highest * 1.1 or 1)
    elif lowest >= 1:
        scale("log")
        limit(lowest / 1.6, highest * 1.8)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        # Nothing at all is on the axis too: below 1 it is as on a ruler.
        scale("symlog", linthresh=1, linscale=0.4)
        limit(-0.3, highest * 1.8)
    if axis.get_scale() != "linear":
        axis.set_label_text(f"{axis.get_label_text()} (logarithmic)")
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _number_dots(figure: Figure, axes: Axes, chosen: list[Row], recorded: list[Row]) -> None:
    # Places of dots are known when the labels of the axes have taken theirs.
    figure.draw_without_rendering()
    to_points = axes.transData + axes.transAxes.inverted()
    size = axes.get_window_extent()
    room = (size.width * 72 / figure.dpi, size.height * 72 / figure.dpi)

    def dot(row: Row) -> Dot:
        x, y = to_points.transform((row["rebalances"], row["stopped_ms"] / 1000))
        return Dot(x * room[0], y * room[1], math.sqrt(_area(row["notice_ms"])) / 2)

    dots = [dot(row) for row in chosen]
    texts = [str(number) for number, _ in enumerate(chosen, start=1)]
    labels = place(texts, dots, [dot(row) for row in recorded], room)
    for text, at, label in zip(texts, dots, labels, strict=True):
        axes.annotate(
            text,
            (at.x / room[0], at.y / room[1]),
            xytext=(label.x / room[0], label.y / room[1]),
            xycoords="axes fraction",
            textcoords="axes fraction",
            ha="center",
            va="center",
            fontweight="bold",
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.7}
            if label.is_far
            else None,
            zorder=5,
        )


def numbered(rows: Iterable[Row]) -> list[Row]:
    """The settings on the front, in the order of their numbers."""
    chosen = [row for row in rows if row["is_on_front"] and not row["is_recorded"]]
    return sorted(chosen, key=lambda row: (row["notice_ms"], row["ordinal"]))


def _area(notice_ms: int) -> float:
    return 30.0 + min(notice_ms / 1000, 300.0)


def _dates(axes: Axes, begin: datetime, end: datetime, form: str) -> None:
    axes.set_xlim(_number(begin), _number(end))
    locator = mdates.AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = mdates.DateFormatter(form)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _number(moment: datetime) -> float:
    """The moment as the axis counts: in days."""
    return float(mdates.date2num(moment))  # type: ignore[no-untyped-call]


def _svg(figure: Figure) -> str:
    output = io.StringIO()
    figure.savefig(output, format="svg", metadata={"Date": None})
    text = output.getvalue()
    return text[text.index("<svg") :]
