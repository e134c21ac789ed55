"""What is compiled is what is written, and nothing else is compiled.

That both forms do the same is for the tests of those modules: each runs them as they are written
and compiled.
"""

import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
TYPES = sorted(path.relative_to(ROOT) for path in (ROOT / "kohort").rglob("*.pxd"))
HOT_CODECS = Path("kohort/protocol/hot_codecs.pxd")
"""Which there is none of: their source is generated."""


def test_there_are_modules_to_compile() -> None:
    assert Path("kohort/protocol/records/walk.pxd") in TYPES


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_what_is_compiled_is_what_is_written_here(types: Path) -> None:
    here = ROOT / types
    if not here.with_suffix(SUFFIX).exists():
        pytest.skip("not compiled")
    newest = max(one.stat().st_mtime for one in (here, here.with_suffix(".py")))
    assert here.with_suffix(SUFFIX).stat().st_mtime >= newest, "compile it: pip install -e ."


def test_nothing_is_left_that_was_compiled_once() -> None:
    """Python would take it instead of the source beside it."""
    compiled = {
        (path.parent / path.name.removesuffix(SUFFIX)).relative_to(ROOT).with_suffix(".pxd")
        for path in (ROOT / "kohort").rglob(f"*{SUFFIX}")
    }
    assert compiled <= {*TYPES, HOT_CODECS}, "compile again: pip install -e ."
