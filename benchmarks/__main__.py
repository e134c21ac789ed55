"""`python -m benchmarks [SUBJECT ...]`: measure, and print one table."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    advise,
    analysis,
    consume,
    landing,
    log,
    machine,
    members,
    records,
    scrape,
    startup,
)
from benchmarks.brokers import contenders
from benchmarks.harness import Bench, Row, Subject
from benchmarks.table import as_json, render

SUBJECTS: dict[str, Subject] = {
    "start": startup,
    "records": records,
    "log": log,
    "scrape": scrape,
    "consume": consume,
    "members": members,
    "landing": landing,
    "advise": advise,
    "analysis": analysis,
}
"""In the order of the table."""

SCRATCH = machine.ROOT / ".cache" / "bench"
"""On the disk that the sources are on: /tmp may be memory."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--runs", type=int, default=5, help="of each contender (5)")
    parser.add_argument("--no-kafka", action="store_true", help="measure Kohort alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    unknown = set(options.subjects) - set(SUBJECTS)
    if unknown or options.runs < 1:
        parser.error(f"subjects are {', '.join(SUBJECTS)}, and runs at least 1")
    chosen = options.subjects or list(SUBJECTS)
    fighters = contenders(with_kafka=not options.no_kafka)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        bench = Bench(options.runs, Path(directory), fighters)
        sections = [(SUBJECTS[name].TITLE, list(SUBJECTS[name].measure(bench))) for name in chosen]
    _print(bench, sections)
    if options.json:
        figures = {title: [as_json(row) for row in rows] for title, rows in sections}
        document = {"machine": machine.describe(), "figures": figures}
        options.json.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return 0


def _print(bench: Bench, sections: list[tuple[str, list[Row]]]) -> None:
    beside = " beside Apache Kafka 4.4.0" if len(bench.contenders) > 1 else ", without a Kafka"
    print(machine.describe())
    print(f"Medians of {bench.runs} alternating runs (smallest - largest){beside}.\n")
    print(render(sections))


if __name__ == "__main__":
    sys.exit(main())
