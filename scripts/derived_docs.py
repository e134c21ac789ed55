"""Rewrites the documents that are derived from the sources; `make docs` runs it.

Tests fail when one of them is not what this writes.
"""

# ruff: noqa: INP001 - run by its path.

from pathlib import Path

from broker.config import docs as configuration
from broker.metrics import docs as metrics

DOCUMENTS = {configuration.PATH: configuration.document, metrics.PATH: metrics.document}
"""Path below the repository's root, and what makes the text."""


def main() -> None:
    root = Path(__file__).parents[1]
    for path, make in DOCUMENTS.items():
        (root / path).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
