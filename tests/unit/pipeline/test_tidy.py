"""Files of earlier versions are kept long enough for readers that have begun."""

from argparse import ArgumentParser
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from kohort.pipeline.jobs import tidy


class OneTable:
    """A lake that records for how many hours it was asked to keep files."""

    def __init__(self) -> None:
        self.hours: list[int] = []

    def names(self) -> list[str]:
        return ["rebalances"]

    def file_count(self, _: str) -> int:
        return 1

    def vacuum(self, _: str, hours: int) -> None:
        self.hours.append(hours)


@pytest.mark.parametrize(("given", "hours"), [("1", 168), ("168", 168), ("200", 200)])
def test_files_are_kept_for_at_least_a_week(
    given: str, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake: Any = OneTable()
    monkeypatch.setattr("kohort.pipeline.options.session_of", lambda *_, **__: None)
    monkeypatch.setattr("kohort.pipeline.options.lake_of", lambda *_: lake)
    monkeypatch.setattr(tidy, "pulse", lambda _: nullcontext(Mock()))
    parser = ArgumentParser()
    tidy.add_arguments(parser)
    assert tidy.run(parser.parse_args(["--lake", "lake", "--keep-files-hours", given])) == 0
    assert lake.hours == [hours]
