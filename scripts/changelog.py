"""CHANGELOG.md from the fragments in changelog.d.

    python scripts/changelog.py                  renew the section "Unreleased"
    python scripts/changelog.py release 1.2.0    make it that release's, and remove the fragments

One fragment per change, because a list that everybody appends to conflicts in every merge.
"""

import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
KINDS: Final = {
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "removed": "Removed",
    "security": "Security",
}

_HEAD: Final = """\
# Changelog

What users notice, newest first. Versions follow [semantic versioning](https://semver.org).
"""
_RELEASES: Final = "\n<!-- releases -->\n"


def fragments(directory: Path) -> dict[str, list[str]]:
    """The texts of the fragments by kind, in the order of their file names.

    Raises ValueError for a file whose name is not `<slug>.<kind>.md`.
    """
    found = defaultdict(list)
    for path in sorted(directory.glob("*.md")):
        if path.name == "README.md":
            continue
        slug, _dot, kind = path.stem.rpartition(".")
        if not slug or kind not in KINDS:
            message = f"{path.name}: a fragment is named <slug>.<kind>.md, kind one of {[*KINDS]}"
            raise ValueError(message)
        found[kind].append(" ".join(path.read_text(encoding="utf-8").split()))
    return dict(found)


def section(title: str, entries: dict[str, list[str]]) -> str:
    """One release, or what will be the next."""
    lines = [f"## {title}"]
    for kind, heading in KINDS.items():
        if kind in entries:
            lines += ["", f"### {heading}", "", *(f"- {entry}" for entry in entries[kind])]
    return "\n".join(lines) + "\n"


def document(entries: dict[str, list[str]], releases: str) -> str:
    """The whole text; `releases` are the sections of the versions that are out."""
    return f"{_HEAD}\n{section('Unreleased', entries)}{_RELEASES}{releases}"


def released(text: str) -> str:
    """The sections of the versions that are out, of a changelog as `document` makes it."""
    return text.partition(_RELEASES)[2]


def renew(root: Path = ROOT) -> str:
    """What CHANGELOG.md has to be now."""
    changelog = root / "CHANGELOG.md"
    releases = released(changelog.read_text(encoding="utf-8")) if changelog.exists() else ""
    return document(fragments(root / "changelog.d"), releases)


def release(version: str, root: Path = ROOT) -> None:
    """Moves what is unreleased below a heading of its own and removes the fragments."""
    changelog = root / "CHANGELOG.md"
    entries = fragments(root / "changelog.d")
    title = f"{version} ({datetime.now(UTC):%Y-%m-%d})"
    older = released(changelog.read_text(encoding="utf-8"))
    changelog.write_text(document({}, f"\n{section(title, entries)}{older}"), encoding="utf-8")
    for path in (root / "changelog.d").glob("*.*.md"):
        path.unlink()


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            (ROOT / "CHANGELOG.md").write_text(renew(), encoding="utf-8")
        case ["release", number]:
            release(number)
        case _:
            sys.exit(__doc__)
