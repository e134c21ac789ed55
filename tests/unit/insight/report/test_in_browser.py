"""The page in a browser, on a desk and on a telephone, by day and in the dark: what fits, what can
be read. Chromium measures it; everything that is folded is unfolded for that.
"""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kohort.insight.report.contents import Contents, GroupPage
from kohort.insight.report.page import render
from tests.support.contrast import TEXT, hexadecimal, ratio
from tests.support.processes import java_env
from tests.unit.insight.report.pages import page, worked_out

pytestmark = pytest.mark.long

SCREEN, TELEPHONE = 900, 844
LETTERS_LEAST = 8
"""Letters in a line, below which a text of several lines is not read but spelt."""
_PACKAGE = "org.apache.kafka.clients.consumer"
LINES = [
    "# 1. First rolling restart:",
    "group.instance.id=<a stable name, unique to each process>",
    "session.timeout.ms=30000",
    f"partition.assignment.strategy={_PACKAGE}.RangeAssignor,{_PACKAGE}.CooperativeStickyAssignor",
    "# 2. Second rolling restart, instead:",
    f"# partition.assignment.strategy={_PACKAGE}.CooperativeStickyAssignor",
]
"""The lines for Java of the setting with the star."""
_FRAME = """<!doctype html><meta charset="utf-8"><body style="margin:0"><pre id="found"></pre>
<iframe id="page" style="border:0;width:{width}px;height:{height}px" srcdoc="{page}"></iframe>
<script>
document.getElementById("page").onload = (event) => {{
  const view = event.target.contentWindow, doc = view.document;
  const bottom = (one) => (one ? one.getBoundingClientRect().bottom : 0);
  const shown = [".compared tr:has(.star)", ".to-set pre"].map((of) => doc.querySelector(of));
  const answered = Math.max(...shown.map((one) => bottom(one) || Infinity));
  const pasted = bottom(doc.querySelector(".short pre"));
  for (const one of doc.querySelectorAll("details")) one.open = true;
  const texts = [];
  const walker = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {{
    const parent = walker.currentNode.parentElement;
    const area = parent.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || !area.width || !area.height) continue;
    // On a telephone, heads of tables are for readers that speak: each value has its title.
    const head = parent.closest("thead");
    if (head && view.getComputedStyle(head).position === "absolute") continue;
    const style = view.getComputedStyle(parent), drawn = parent.closest("svg");
    let ground = "rgba(0, 0, 0, 0)";
    for (let up = parent; up && ground === "rgba(0, 0, 0, 0)"; up = up.parentElement)
      ground = view.getComputedStyle(up).backgroundColor;
    const range = doc.createRange();
    range.selectNodeContents(walker.currentNode);
    const tops = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
    const scale = drawn ? drawn.getBoundingClientRect().width / drawn.viewBox.baseVal.width : 1;
    texts.push({{
      text: walker.currentNode.data.slice(0, 40),
      colour: drawn ? style.fill : style.color,
      ground: parent.classList.contains("letter") ? null : ground,
      size: parseFloat(style.fontSize) * scale,
      right: area.right,
      across: walker.currentNode.data.trim().length / Math.max(tops.size, 1),
      rows: tops.size,
      scrolls: !!parent.closest("pre"),
    }});
  }}
  // What is copied, and how far the further rows of a line to paste are indented.
  const code = doc.querySelector(".to-set code"), all = doc.createRange();
  all.selectNodeContents(code);
  view.getSelection().removeAllRanges();
  view.getSelection().addRange(all);
  const copied = view.getSelection().toString();
  const indents = [];
  for (const line of code.children) {{
    all.selectNodeContents(line);
    const rows = [...all.getClientRects()].filter((one) => one.width);
    const first = rows[0].left, further = rows.filter((one) => one.top > rows[0].bottom - 1);
    for (const row of further) indents.push(row.left - first);
  }}
  const plots = [...doc.querySelectorAll("svg")].filter((one) => one.getClientRects().length);
  document.getElementById("found").textContent = JSON.stringify({{
    width: doc.documentElement.scrollWidth,
    plots: plots.length,
    answered,
    pasted,
    copied,
    indents,
    texts,
  }});
}};
</script>"""


def measure(width: int, theme: str, tmp_path: Path, *pages: GroupPage) -> dict[str, Any]:
    """What a browser of this width makes of the page of a group, or of several."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        java_env.missing("there is no chromium")
    contents = Contents(pages or [page(advice=worked_out("billing"))])
    text = render(contents, "the recorded week", datetime(2026, 1, 12, tzinfo=UTC))
    frame = tmp_path / "frame.html"
    frame.write_text(
        _FRAME.format(width=width, height=SCREEN, page=html.escape(text)), encoding="utf-8"
    )
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            frame.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measured


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_everything_fits_and_can_be_read(width: int, theme: str, tmp_path: Path) -> None:
    found = measure(width, theme, tmp_path)
    # Nothing has to be moved aside to be seen, but long lines of settings.
    assert found["width"] <= width
    outside = [one for one in found["texts"] if one["right"] > width + 1 and not one["scrolls"]]
    assert not outside, outside[:3]
    assert found["plots"] == 2
    assert len(found["texts"]) > 500
    for one in found["texts"]:
        assert one["size"] >= 10, one
        if one["ground"] is not None:
            assert ratio(hexadecimal(one["colour"]), hexadecimal(one["ground"])) >= TEXT, one
    (title, *_) = found["texts"]
    is_dark = title["ground"] == "rgb(18, 24, 30)"
    assert is_dark == (theme == "dark")
    # The best setting and what to paste for it are on the first screen, on a telephone in short.
    assert width < 1000 or found["answered"] <= SCREEN
    assert (0 < found["pasted"] <= TELEPHONE) == (width == 390) or width in {320, 768}
    assert not _broken(found)
    # A line to paste is one line again where it is pasted.
    assert found["copied"].splitlines() == LINES
    assert len(found["indents"]) >= (1 if width == 768 else 4)
    assert min(found["indents"]) > 5


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_of_several_groups_fits_too(width: int, tmp_path: Path) -> None:
    group = ('<b>bold</b> "quoted" & ' + "x" * 200)[:200]
    long = replace(page("payments"), group=group)
    pages = [page(advice=worked_out("billing")), long, page("search")]
    found = measure(width, "light", tmp_path, *pages)
    assert found["width"] <= width
    assert not _broken(found)


def _broken(found: dict[str, Any]) -> list[Any]:
    """The texts that are broken into columns of a few letters."""
    return [one for one in found["texts"] if one["rows"] > 4 and one["across"] < LETTERS_LEAST]
