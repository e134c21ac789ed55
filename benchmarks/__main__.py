"""`python -m benchmarks [SUBJECT ...]`: measure, and print one table."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    connections,
    groups,
    largest,
    latency,
    machine,
    partitions,
    profiling,
    rpc,
    security,
    startup,
    testing,
    throughput,
    tls,
    transactions,
    walks,
    watch,
)
from benchmarks.brokers import contenders
from benchmarks.harness import Bench, Row, Subject, progress
from benchmarks.table import as_json, render

SUBJECTS: dict[str, Subject] = {
    "start": startup,
    "rpc": rpc,
    "throughput": throughput,
    "latency": latency,
    "groups": groups,
    "transactions": transactions,
    "connections": connections,
    "tls": tls,
    "security": security,
    "partitions": partitions,
    "largest": largest,
    "walks": walks,
    "watch": watch,
    "testing": testing,
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
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="DIRECTORY",
        help="write what py-spy sees of each broker of ours there, for speedscope; it takes time",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="of rpc, throughput, groups, transactions and security: parts with TEXT in their name",
    )
    options = parser.parse_args()
    unknown = set(options.subjects) - set(SUBJECTS)
    if unknown or options.runs < 1:
        parser.error(f"subjects are {', '.join(SUBJECTS)}, and runs at least 1")
    chosen = options.subjects or list(SUBJECTS)
    fighters = contenders(with_kafka=not options.no_kafka, profiles=options.profile)
    place = machine.describe()  # Of the sources that are measured, whatever becomes of them.
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        bench = Bench(options.runs, Path(directory), fighters, only=options.only)
        sections, failures = _measure(bench, chosen, place, options.json)
    _print(bench, place, sections)
    if options.profile:
        print("", *profiling.summary(options.profile), sep="\n")
    for failure in failures:
        print(f"\nFAILED: {failure}")
    return 1 if failures else 0


def _measure(
    bench: Bench, chosen: list[str], place: str, output: Path | None
) -> tuple[list[tuple[str, list[Row]]], list[str]]:
    """The rows of all subjects, and which subjects have none because something went wrong."""
    sections: list[tuple[str, list[Row]]] = []
    failures = []
    for name in chosen:
        subject = SUBJECTS[name]
        progress(f"{subject.TITLE}")
        try:
            sections.append((subject.TITLE, list(subject.measure(bench))))
        except Exception as error:  # noqa: BLE001 - an hour's figures are not lost for one.
            failures.append(f"{name}: {error!r}")
            progress(failures[-1])
        if output:
            _write(sections, place, output)
    return sections, failures


def _write(sections: list[tuple[str, list[Row]]], place: str, output: Path) -> None:
    """After each subject: who breaks off a long run has what came before."""
    figures = {title: [as_json(row) for row in rows] for title, rows in sections}
    document = {"machine": place, "figures": figures}
    output.write_text(json.dumps(document, indent=2), encoding="utf-8")


def _print(bench: Bench, place: str, sections: list[tuple[str, list[Row]]]) -> None:
    beside = " beside Apache Kafka 4.4.0" if len(bench.contenders) > 1 else ", without a Kafka"
    print(place)
    print(f"Medians of {bench.runs} alternating runs (smallest - largest){beside}.\n")
    print(render(sections))


if __name__ == "__main__":
    sys.exit(main())
