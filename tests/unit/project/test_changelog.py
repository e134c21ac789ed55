"""CHANGELOG.md grows from fragments."""

import re
from pathlib import Path

import pytest

from scripts import changelog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("how to")
    return tmp_path


def add(root: Path, name: str, text: str) -> None:
    (root / "changelog.d" / name).write_text(text)


def test_the_changelog_of_the_tree_shows_every_fragment() -> None:
    """`make docs` renews it."""
    assert (changelog.ROOT / "CHANGELOG.md").read_text() == changelog.renew()


def test_before_the_first_release_nothing_has_changed_for_anybody() -> None:
    is_first = not changelog.released((changelog.ROOT / "CHANGELOG.md").read_text())
    kinds = changelog.fragments(changelog.ROOT / "changelog.d").keys()
    assert not is_first or kinds == {"added"}


def test_fragments_are_grouped_by_kind_in_the_order_of_the_kinds(root: Path) -> None:
    add(root, "z.fixed.md", "A crash\non start.\n")
    add(root, "b.added.md", "Second thing.")
    add(root, "a.added.md", "First thing.")

    assert changelog.renew(root).splitlines()[4:-2] == [
        "## Unreleased",
        "",
        "### Added",
        "",
        "- First thing.",
        "- Second thing.",
        "",
        "### Fixed",
        "",
        "- A crash on start.",
    ]


def test_a_release_takes_the_fragments_and_stays_above_the_older_ones(root: Path) -> None:
    add(root, "a.added.md", "First thing.")
    (root / "CHANGELOG.md").write_text(changelog.renew(root))
    changelog.release("1.0.0", root)
    add(root, "b.fixed.md", "Its fault.")
    (root / "CHANGELOG.md").write_text(changelog.renew(root))
    changelog.release("1.0.1", root)

    text = (root / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", text, re.MULTILINE) == ["Unreleased", "1.0.1", "1.0.0"]
    assert text.index("Its fault.") < text.index("First thing.")
    assert [path.name for path in (root / "changelog.d").iterdir()] == ["README.md"]
    assert changelog.renew(root) == text


@pytest.mark.parametrize("name", ["thing.md", "thing.new.md", ".added.md"])
def test_a_fragment_of_no_kind_is_refused_by_name(root: Path, name: str) -> None:
    add(root, name, "text")

    with pytest.raises(ValueError, match=re.escape(name)):
        changelog.renew(root)
