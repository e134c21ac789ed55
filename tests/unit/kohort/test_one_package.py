"""What is installed is one package, whatever modules the user's own project has."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMON_NAMES = ("broker", "client", "pipeline", "protocol")
"""Also those of our rooms, for which there are links at the top of a checkout."""

_USE = """
import kohort
for name in kohort._HOMES:
    getattr(kohort, name)
import kohort.broker.daemon
import kohort.insight.advisor.advice
from kohort.broker.handlers import load_handlers
load_handlers()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose modules have the names of our rooms, and must not be taken for them."""
    for name in COMMON_NAMES:
        tmp_path.joinpath(f"{name}.py").write_text(f"raise RuntimeError('the user's {name}')\n")
    return tmp_path


@pytest.mark.parametrize("arguments", [["-c", _USE], ["-m", "kohort", "topics", "--help"]])
def test_a_project_with_modules_of_the_same_names_can_use_it(
    project: Path, arguments: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_checkout_starts_the_daemon_by_the_name_of_its_room() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker", "--help"], cwd=ROOT, capture_output=True, check=True
    )
    assert b"--override" in done.stdout


def test_all_loggers_are_below_that_of_the_package() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "kohort").rglob("*.py"))
    # What another library tells may be kept quiet: then its level is set at once, and no more.
    ours = re.compile(r'getLogger\("([^"]+)"\)(?!\.setLevel)')
    named = {name for text in sources for name in ours.findall(text)}
    assert {name for name in named if name.partition(".")[0] != "kohort"} == set()


def test_a_wheel_contains_one_package_and_all_of_its_rooms(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"KOHORT_COMPILE": "0"},
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kohort"}
    rooms = {Path(name).parts[1] for name in names if name.startswith("kohort/")}
    assert {*COMMON_NAMES, "cli", "admin", "py.typed"} <= rooms
    assert "kohort/pipeline/jars.lock" in names


@pytest.mark.long
def test_an_sdist_has_each_source_once_and_where_a_wheel_is_built_from(tmp_path: Path) -> None:
    """The links at the top would be followed, and the rooms be missing below the package."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    for name in COMMON_NAMES:
        assert Path("kohort", name, "__init__.py") in names
        assert Path(name, "__init__.py") not in names
    assert Path("accelerated/build_hook.py") in names
    left_over = {".crc", ".pyc", ".so", ".db"}
    assert {name for name in names if name.suffix in left_over} == set()


@pytest.mark.parametrize("name", COMMON_NAMES)
def test_the_rooms_are_where_the_top_of_a_checkout_shows_them(name: str) -> None:
    assert (ROOT / name).resolve() == (ROOT / "kohort" / name).resolve()
