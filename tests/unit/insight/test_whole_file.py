import os
import stat
import threading
from pathlib import Path

import pytest

from kohort.insight.output import write_whole


def test_a_page_replaces_the_one_before_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for text in ("one", "two"):
        write_whole(page, text)
    assert page.read_text(encoding="utf-8") == "two"
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_whole(tmp_path / "missing" / "page.html", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_whole(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
