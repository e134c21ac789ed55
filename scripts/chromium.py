"""The browser that pictures are taken with."""

from __future__ import annotations

import shutil
import sys


def found_or_exit() -> str:
    """Where Chromium is; ends the script where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("there is no chromium: apt-get install chromium")
    return browser
