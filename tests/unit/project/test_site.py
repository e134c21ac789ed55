"""The documents as pages: every link leads somewhere, there as in the tree."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import docs_site

ROOT = Path(__file__).parents[3]


def test_every_page_has_its_place_and_its_links(tmp_path: Path) -> None:
    """A link that leads nowhere ends it."""
    docs_site.main(tmp_path)
    settings = (tmp_path / "mkdocs.yml").read_text()
    pages = {
        path.relative_to(tmp_path / "pages").as_posix()
        for path in (tmp_path / "pages").rglob("*.md")
    }
    assert all(settings.count(f"    - {name}\n") == 1 for name in pages)
    listed = {name for names in docs_site.NAVIGATION.values() for name in names}
    assert listed <= pages


def test_links_to_sources_lose_their_target_and_others_keep_it() -> None:
    text = (
        "[a](alerts.md#lag) [b](../kohort) [c](https://example.com)\n"
        "```\n[d](nowhere.md)\n```\n![e](pictures/x.png)"
    )
    made = docs_site.as_page(text, ROOT / "docs", {"docs/alerts.md"})
    assert made == text.replace("[b](../kohort)", "b")


def test_a_link_that_leads_nowhere_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"there is no gone\.md"):
        docs_site.as_page("[a](gone.md)", ROOT / "docs", set())


@pytest.mark.long
def test_mkdocs_finds_no_link_and_no_anchor_broken(tmp_path: Path) -> None:
    docs_site.main(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
