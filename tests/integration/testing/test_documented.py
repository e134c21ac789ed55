"""Every block of Python in docs/testing-your-service.md runs, as a test where it has tests."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "testing-your-service.md").read_text(encoding="utf-8")

OPTIONS = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
OPTIONS += ["-o", "asyncio_default_fixture_loop_scope=function"]


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_document_pass(tmp_path: Path) -> None:
    blocks = blocks_of("python")
    assert len(blocks) >= 7
    (settings,) = blocks_of("toml")
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "test_examples.py").write_text("\n\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", *OPTIONS, str(tmp_path)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    count = len(re.findall(r"def test_", "\n".join(blocks)))
    assert f"{count} passed" in done.stdout, done.stdout + done.stderr
