"""The page by itself: what is in it, and that a browser can show it."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.advisor.setting import Setting
from tests.support.processes import java_env

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from kohort.pipeline.report import plots
from kohort.pipeline.report.contents import Contents, GroupPage, in_utc
from kohort.pipeline.report.page import duration, render

BEGUN = datetime(2026, 1, 5, 10, 0, 0)  # noqa: DTZ001 - Spark hands moments out without a zone.


def advice() -> list[dict[str, Any]]:
    def row(ordinal: int, rebalances: int, stopped_s: int, **more: object) -> dict[str, Any]:
        flags = {"is_recorded": False, "is_on_front": False, "is_best": False}
        return {
            **Setting(static=False).as_dict(),
            **flags,
            "ordinal": ordinal,
            "rebalances": rebalances,
            "stopped_ms": stopped_s * 1000,
            "notice_ms": 40_000 + ordinal * 20_000,
            "text": f"setting {ordinal}",
            "unknown": ["what nobody has written down"],
            **more,
        }

    return [
        row(0, 41, 310, is_recorded=True),
        row(1, 20, 200),
        row(2, 3, 22, is_on_front=True, is_best=True),
        row(3, 2, 21, is_on_front=True),
    ]


def page(**changes: Any) -> GroupPage:  # noqa: ANN401 - any field.
    events = [
        {
            "sequence": number,
            "started_at": BEGUN + timedelta(seconds=20 * number),
            "duration_ms": 4_000,
            "trigger_kind": ("member_left", "member_added")[number % 2],
            "trigger_client_id": "billing-1",
            "stopped_total_ms": 9_000,
            "outcome": "stable",
        }
        for number in range(8)
    ]
    storm = {
        "started_at": BEGUN,
        "rebalance_count": 8,
        "duration_ms": 144_000,
        "started_by": "deploy",
        "first_cause": "member_left",
        "first_client_id": "billing-1",
        "stopped_total_ms": 72_000,
        "events": events,
    }
    made: dict[str, Any] = {
        "cluster_id": "c",
        "group": "billing",
        "rebalances": 41,
        "needless": 4,
        "stopped_ms": 310_000,
        "stopped_longest_ms": 12_000,
        "first_at": BEGUN,
        "last_at": BEGUN + timedelta(days=6),
        "causes": [
            {"trigger_kind": "member_left", "rebalance_count": 30, "stopped_total_ms": 200_000},
            {"trigger_kind": "a_new_one", "rebalance_count": 11, "stopped_total_ms": None},
        ],
        "by_day": [
            {"day": date(2026, 1, 5 + number), "rebalances": number, "stopped_ms": 1000 * number}
            for number in range(7)
        ],
        "storms": [storm],
        "advice": advice(),
    }
    return GroupPage(**(made | changes))


def html(*pages: GroupPage) -> str:
    contents = Contents(list(pages), group_count=len(pages))
    return render(contents, "the lake x", datetime(2026, 1, 12, tzinfo=UTC))


def test_the_page_needs_nothing_beside_it() -> None:
    text = html(page())
    assert "<script" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!#)[^"']+["']""", text)


def test_what_was_found_is_on_the_page_as_text() -> None:
    text = html(page())
    for said in ("billing", "setting 2", "gains most", "what nobody has written down", "310.0"):
        assert said in text
    assert "Worst storm: Monday 05 January, 10:00:00" in text
    # Labels of plots are text as well.
    for label in (">rebalances<", ">member left<", ">a new one<", ">as recorded<"):
        assert label in text
    assert text.count("<svg") == 4


def test_names_are_shown_and_not_obeyed() -> None:
    text = html(page(group="<script>alert(1)</script>"))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_group_without_advice_or_storms_has_a_page_too() -> None:
    text = html(page(advice=[], storms=[], causes=[]))
    assert "kohort pipeline advise" in text
    assert text.count("<svg") == 1


def test_the_same_contents_make_the_same_page() -> None:
    assert html(page()) == html(page())


def test_the_axis_of_a_storm_spans_the_storm_and_no_more() -> None:
    kinds = ("member_left", "member_added", "session_expired")
    events = [
        {
            "started_at": BEGUN + timedelta(minutes=minute),
            # The first one takes longest, and ends behind the last one.
            "duration_ms": 900_000 if minute == 0 else 5_000,
            "trigger_kind": kinds[minute % 3],
        }
        for minute in (0, 4, 8, 13)
    ]
    labels = re.findall(r">(\d\d:\d\d):\d\d<", plots.storm(events))
    assert labels == sorted(labels)
    assert labels[0] <= "10:05"
    assert "10:10" <= labels[-1] <= "10:15"


def test_moments_are_those_of_utc_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        # As Spark hands it out there: half past three in the afternoon, without a zone.
        here = datetime.fromtimestamp(1_767_607_200)  # noqa: DTZ006 - as above.
        assert here.hour == 15
        assert in_utc(here) == BEGUN
    finally:
        monkeypatch.undo()
        time.tzset()
    assert in_utc("10:00") == "10:00"


def test_settings_are_numbered_in_the_plot_as_in_the_list() -> None:
    assert [row["ordinal"] for row in plots.numbered(advice())] == [2, 3]


@pytest.mark.parametrize("days", [1, 2, 7, 30])
def test_days_are_named_once_each(days: int) -> None:
    first = date(2026, 1, 1)
    rows = [
        {"day": first + timedelta(days=number), "rebalances": 1, "stopped_ms": 1000}
        for number in range(days)
    ]
    named = re.findall(r">(\w{3} \d\d \w{3})<", plots.by_day(rows))
    assert 3 <= len(named) <= 12
    assert len(named) == len(set(named))
    assert days > 1 or "Thu 01 Jan" in named


def test_a_few_costly_settings_do_not_press_the_others_into_a_corner() -> None:
    rows = advice()
    assert "logarithmic" not in plots.front(rows[:2])
    # 21 s and 310 s, 2 rebalances and 41: only these are far apart.
    assert ">rebalances (logarithmic)<" in plots.front(rows)
    assert ">seconds stopped, all members<" in plots.front(rows)
    nothing = {**rows[3], "rebalances": 0, "stopped_ms": 0}
    assert ">0<" in plots.front([*rows, nothing])


@pytest.mark.parametrize(
    ("ms", "said"), [(900, "0.9 s"), (144_000, "2 min"), (7_200_000, "2.0 h"), (None, "a time")]
)
def test_durations_are_told_as_people_do(ms: int | None, said: str) -> None:
    assert duration(ms).startswith(said)


def test_a_browser_shows_its_text_and_its_plots(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        java_env.missing("there is no chromium")
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib.

    source, picture = tmp_path / "page.html", tmp_path / "page.png"
    source.write_text(html(page()), encoding="utf-8")
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1100,2200",
            f"--screenshot={picture}",
            source.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    shown = Image.open(picture).convert("RGB")
    assert shown.size == (1100, 2200)
    counts = shown.getcolors(shown.size[0] * shown.size[1])
    assert counts is not None
    pixels = {colour: count for count, colour in counts}
    for name, colour in (
        ("text", plots.INK),
        ("the setting that was recorded", plots.RECORDED),
        ("the front", plots.FRONT),
        ("bars by day", plots.STOPPED),
        ("a cause", plots.colour("member_left")),
    ):
        red_green_blue = tuple(bytes.fromhex(colour[1:]))
        assert pixels.get(red_green_blue, 0) > 20, f"{name} is not to be seen"
    white = pixels[255, 255, 255] / (shown.size[0] * shown.size[1])
    assert 0.5 < white < 0.97
