"""The pictures of docs/report.md: the first screen of the recorded week's page, by Chromium.

Run by `make pictures`. Chromium has to be installed; nothing else is needed.
"""

from __future__ import annotations

import html
import subprocess
import sys
import tempfile
from pathlib import Path

from kohort.cli import main as kohort
from scripts.chromium import found_or_exit
from scripts.png import squeezed

ROOT = Path(__file__).parents[1]
WEEK = ROOT / "examples" / "rebalance-week" / "week.jsonl.gz"
PICTURES = ROOT / "docs" / "pictures"
GROUP = "billing"
SCREENS = (("report-desk", 1_280, 900, 1), ("report-telephone", 390, 844, 0))
"""Name, width and height, and Chromium's number of the theme: 1 is light, 0 is dark."""
_FRAME = (
    '<!doctype html><meta charset="utf-8"><body style="margin:0">'
    '<iframe style="border:0;width:{width}px;height:{height}px" srcdoc="{page}"></iframe>'
)


def main() -> int:
    """Make the pictures; returns the exit code."""
    browser = found_or_exit()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory, "page.html")
        code = kohort(["groups", "report", GROUP, "--from", str(WEEK), "--output", str(page)])
        if code:
            return code
        text = html.escape(page.read_text(encoding="utf-8"))
        for name, width, height, theme in SCREENS:
            frame = Path(directory, f"{name}.html")
            content = _FRAME.format(width=width, height=height, page=text)
            frame.write_text(content, encoding="utf-8")
            _take(browser, frame, PICTURES / f"{name}.png", (width, height), theme)
    return 0


def _take(browser: str, page: Path, picture: Path, size: tuple[int, int], theme: int) -> None:
    width, height = size
    subprocess.run(  # noqa: S603 - of the browser that was found, for a page of our own.
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={page.with_suffix('.profile')}",
            f"--blink-settings=preferredColorScheme={theme}",
            f"--window-size={width},{height}",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    picture.write_bytes(squeezed(picture.read_bytes()))


if __name__ == "__main__":
    sys.exit(main())
