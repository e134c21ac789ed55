"""The command line of `kohort pipeline`, as far as it goes without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli import main


def test_what_executors_get_replays_a_history_without_any_package(tmp_path: Path) -> None:
    archive = tmp_path / "kohort.zip"
    assert main(["pipeline", "py-files", str(archive)]) == 0
    # As Spark does it: the archive is on the path, and here nothing else is.
    modules = ("prediction", "advice", "reading")
    code = f"import sys; sys.path.insert(0, {str(archive)!r})\n" + "\n".join(
        f"import kohort.insight.advisor.{name}" for name in modules
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd=tmp_path, timeout=300)


def test_a_driver_that_has_the_archive_first_finds_the_reports_style_in_it(tmp_path: Path) -> None:
    archive = tmp_path / "kohort.zip"
    assert main(["pipeline", "py-files", str(archive)]) == 0
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "from kohort.insight.report.page import style; assert '{' in style()"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd=tmp_path, timeout=300)


def test_an_archive_that_spark_would_pass_over_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "py-files", str(tmp_path / "kohort.whl")]) == 2
    assert "whose name ends in .zip" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_wrong_argument_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "convert-log"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kohort pipeline convert-log: ")
    assert "--help" in line
