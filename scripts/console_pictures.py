"""The pictures of the README: the console's timeline, and `kohort groups timeline`, of one hour.

The hour is lived (`story`), then told by a broker that is asked as anybody would ask it: by
Chromium, and by the command. Run by `make pictures`; an argument names another directory.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from kohort.testing.kit.broker import KitBroker
from kohort.testing.kit.machine import MemoryMachine, ReservedPort
from scripts.chromium import found_or_exit
from scripts.story import GROUP, lived
from tests.support.brokers.server_process import free_port
from tests.support.browser import Browser

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
SIZE: Final = (1_120, 965)
COLUMNS: Final = 108

_DARK: Final = TerminalTheme(
    (18, 24, 30),
    (214, 222, 230),
    [
        (18, 24, 30), (240, 110, 110), (120, 200, 130), (230, 190, 90),
        (110, 170, 240), (200, 140, 230), (110, 205, 210), (214, 222, 230),
    ],
)  # fmt: skip

_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#12181e"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""The SVG that rich makes, without its window frame and without a typeface from the network."""


def main(directory: Path = PICTURES) -> int:
    """Make the pictures; returns the exit code."""
    found_or_exit()
    # Times in pictures are those of the story, wherever they are made.
    os.environ["TZ"] = "UTC"
    time.tzset()
    asyncio.run(_take_pictures(lived(), directory))
    return 0


async def _take_pictures(machine: MemoryMachine, directory: Path) -> None:
    """Start a broker on what the story has left, and look at it."""
    console, metrics = free_port(), free_port()
    settings = {"kohort.console.port": console, "kohort.metrics.port": metrics}
    port = ReservedPort()
    broker = KitBroker(settings, machine, port.number, Random(0))  # noqa: S311 - no secrets.
    await broker.start()
    try:
        newest = (await broker.groups.rebalances(GROUP))[-1].sequence
        url = f"http://127.0.0.1:{console}/#/groups/{GROUP}/timeline/{newest}"
        await asyncio.to_thread(_photograph, url, directory / "console-timeline.png")
        text = await _wait_told(f"http://127.0.0.1:{metrics}")
        (directory / "groups-timeline.svg").write_text(_drawn(text), encoding="utf-8")
    finally:
        await broker.close()
        port.close()


def _photograph(url: str, path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory, Browser(Path(directory)) as browser:
        browser.size(*SIZE)
        browser.theme("light")
        browser.open(url)
        browser.wait("document.querySelector('.waterfall') && document.querySelector('.axis')")
        browser.wait("document.querySelector('#live').classList.contains('is-live')")
        if browser.problems:
            sys.exit(f"the console has failed: {browser.problems}")
        browser.picture(path)


async def _wait_told(url: str) -> str:
    """What the command prints, with its colours."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    command = (sys.executable, "-m", "kohort.cli", "groups", "timeline", GROUP, "--http", url)
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        sys.exit(process.returncode)
    return output.decode()


def _drawn(told: str) -> str:
    """The screen of a terminal on which that command was typed."""
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen.print(Text.assemble(("$ ", "dim"), (f"kohort groups timeline {GROUP}", "bold")))
    screen.print(Text.from_ansi(told))
    return screen.export_svg(theme=_DARK, code_format=_SVG)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
