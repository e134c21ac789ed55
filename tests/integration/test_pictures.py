"""The pictures of the README can be taken again, and show what the story was made to show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.java_env import missing

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def words(picture: Path) -> str:
    """What stands on the drawn terminal."""
    text = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8")))
    return text.replace("&#160;", " ")


@pytest.mark.long
def test_pictures_are_taken_of_an_hour_that_is_lived_again(tmp_path: Path) -> None:
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        missing("there is no chromium")
    command = [sys.executable, "-m", "scripts.console_pictures", str(tmp_path)]
    subprocess.run(command, cwd=PICTURES.parents[1], check=True, timeout=600)
    assert (tmp_path / "console-timeline.png").stat().st_size > 20_000
    for told in (words(tmp_path / "groups-timeline.svg"), words(PICTURES / "groups-timeline.svg")):
        assert "missed its session timeout of 20 s; 3" in told
        assert re.search(r"it waited [\d.]+ s for member billing-2-", told)
        assert "gives up partitions" in told
