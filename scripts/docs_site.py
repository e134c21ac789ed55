"""Where mkdocs reads the documents from: the tree's own pages, under their own names.

``python -m scripts.docs_site DIRECTORY`` copies the documents at the top and docs/, so that
the same links lead to the same things in a checkout and on the site. Links to folders and to
sources, which a site has not, lose their target; one that leads nowhere is an error.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FIRST: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

LINK: Final = re.compile(r"(?<!\!)\[([^\]\[]*)\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

SITE: Final = """\
site_name: Kohort
docs_dir: pages
theme: {name: mkdocs, color_mode: auto, user_color_mode_toggle: true, navigation_depth: 3}
plugins: [search]
markdown_extensions: [tables, fenced_code, {toc: {permalink: true}}]
validation:
  omitted_files: ignore
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
nav:
"""

NAVIGATION: Final = {
    "Start": ["README.md", "docs/README.md"],
    "Use": [
        "docs/command-line.md",
        "docs/groups.md",
        "docs/watch.md",
        "docs/report.md",
        "docs/advisor.md",
        "docs/console.md",
        "docs/running-a-consumer.md",
        "docs/consumer-reference.md",
        "docs/from-aiokafka.md",
        "docs/exactly-once.md",
        "docs/testing-your-service.md",
        "docs/pipeline.md",
    ],
    "Operate": [
        "docs/securing-it.md",
        "docs/access.md",
        "docs/quotas.md",
        "docs/alerts.md",
        "docs/backup-and-restore.md",
        "docs/upgrade.md",
        "docs/kubernetes.md",
        "docs/outgrowing-one-machine.md",
        "SECURITY.md",
    ],
    "Understand": [
        "docs/ARCHITECTURE.md",
        "docs/vocabulary.md",
        "docs/benchmarks.md",
        "CONTRIBUTING.md",
    ],
    "Reference": [
        "docs/configuration.md",
        "docs/metrics.md",
        "docs/apis.md",
        "docs/differences.md",
        "docs/rebalance-history.md",
        "docs/pipeline-tables.md",
        "CHANGELOG.md",
    ],
}
"""The parts of docs/README.md; further pages follow by name."""


def main(directory: Path) -> None:
    """Rebuild the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    pages = directory / "pages"
    documents = [ROOT / name for name in FIRST] + sorted((ROOT / "docs").rglob("*.md"))
    known = {path.relative_to(ROOT).as_posix() for path in documents}
    for path in documents:
        target = pages / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_text(encoding="utf-8")
        target.write_text(as_page(content, path.parent, known), encoding="utf-8")
    for path in (ROOT / "docs").rglob("*"):
        if path.is_file() and path.suffix != ".md":
            target = pages / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (directory / "mkdocs.yml").write_text(SITE + navigation(known), encoding="utf-8")


def as_page(content: str, folder: Path, known: set[str]) -> str:
    """The text of a document in that folder, with links to pages and files of the site only.

    Raises SystemExit for a link that leads nowhere.
    """

    def linked(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        place, _, _ = target.partition("#")
        if "://" in target or not place or target.startswith("mailto:"):
            return found[0]
        resolved = (folder / place).resolve()
        if not resolved.exists():
            raise SystemExit(f"{folder}: there is no {place}")
        name = resolved.relative_to(ROOT).as_posix()
        is_file_of_docs = name.startswith("docs/") and resolved.is_file()
        return found[0] if name in known or is_file_of_docs else text

    parts, position = [], 0
    for fence in FENCE.finditer(content):
        parts += [LINK.sub(linked, content[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, LINK.sub(linked, content[position:])])


def navigation(known: set[str]) -> str:
    """The list of pages, as YAML."""
    listed = {name for names in NAVIGATION.values() for name in names}
    decisions = sorted(name for name in known if name.startswith("docs/adr/"))
    rest = sorted(known - listed - set(decisions))
    lines = []
    for title, names in {**NAVIGATION, "More": rest, "Decisions": decisions}.items():
        if names:
            lines.append(f"  - {title}:")
        lines += [f"    - {name}" for name in names]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
