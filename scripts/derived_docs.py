"""Rewrites the documents that are made from the sources; `make docs` runs it.

Each has a test that fails while the file differs from its source.
"""

from pathlib import Path
from typing import Final

from scripts import (
    configuration_document,
    consumer_document,
    differences,
    group_states,
    history_examples,
    metrics_document,
    pipeline_tables,
)

ROOT: Final = Path(__file__).parents[1]


def main() -> None:
    for module in (configuration_document, consumer_document, metrics_document):
        path = ROOT / module.PATH
        path.write_text(module.document(), encoding="utf-8")
    differences.PATH.write_text(differences.document(), encoding="utf-8")
    for part in (group_states, history_examples, pipeline_tables):
        text = part.PATH.read_text(encoding="utf-8")
        part.PATH.write_text(part.renew(text), encoding="utf-8")


if __name__ == "__main__":
    main()
