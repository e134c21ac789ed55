"""The what-if advisor: replays per second, and (group, setting) pairs per second with Spark, each
on one core and on two.

The replays are those of the recorded week in `examples/rebalance-week`, of three groups; a pair is
as many replays as a prediction takes, five at least. With Spark, it is `kohort pipeline advise` as
its users run it, of one group of the week: the figures have the start of its Python workers in
them, not that of the session. Kafka has nothing of the kind.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Bench, Figure, Pair, Row, progress
from benchmarks.machine import ROOT
from benchmarks.use import Use
from kohort.insight.advisor.grid import grid
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.replay import Replay
from kohort.insight.advisor.trace import Trace

TITLE: Final = "What-if advice for a recorded week of three groups"

_WEEK: Final = ROOT / "examples" / "rebalance-week" / "week.jsonl.gz"
_EVERY: Final = 3
"""Replay every third setting of the grid, so that a run takes seconds."""
_GROUP: Final = "search"
_JARS: Final = ROOT / ".cache" / "jars"
_PAIRS: Final = re.compile(r"([\d,]+) replays? of a group under a setting")
_DONE: Final = re.compile(r"done in ([\d.]+) s")


def measure(bench: Bench) -> Iterable[Row]:
    jobs = [(group, place) for group in sorted(_traces()) for place in _places(group)]
    speeds: dict[int, list[float]] = {1: [], 2: []}
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=context) as one,
        ProcessPoolExecutor(2, mp_context=context) as two,
    ):
        for pool in (one, two):
            list(pool.map(_try, jobs[:4]))
        for _ in range(bench.runs):
            for cores, pool in ((1, one), (2, two)):
                begun = time.perf_counter()
                counts = list(pool.map(_try, jobs))
                assert all(counts), "a replay without a rebalance"
                speeds[cores].append(len(jobs) / (time.perf_counter() - begun))
    for cores, measured in speeds.items():
        yield Row(f"replays, {_on(cores)}", "replays/s", Pair(Figure(tuple(measured))), "more")
    yield from _with_spark(bench)


def _with_spark(bench: Bench) -> Iterable[Row]:
    if not _JARS.is_dir():
        progress("")
        return
    runs: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    for run in range(bench.runs):
        for cores, measured in runs.items():
            measured.append(_advise(cores, bench.directory / f"advise-{run}-{cores}"))
    for cores, measured in runs.items():
        speeds, processor, memory = (tuple(values) for values in zip(*measured, strict=True))
        where = f"with Spark, {_on(cores)}"
        yield Row(f"group and setting {where}", "pairs/s", Pair(Figure(speeds)), "more")
        yield Row(f"processor time of the command {where}", "s", Pair(Figure(processor)))
        yield Row(f"memory of driver and executor {where}", "MiB", Pair(Figure(memory)))


def _advise(cores: int, lake: Path) -> tuple[float, float, float]:
    """Pairs per second, seconds of processor, MiB."""
    command = [sys.executable, "-m", "kohort.cli", "pipeline", "advise", "--from", str(_WEEK)]
    command += ["--group", _GROUP, "--lake", str(lake), "--jars", str(_JARS)]
    command += ["--master", f"local[{cores}]", "--conf", "spark.ui.enabled=false"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    use = Use(process.pid)
    _, told = process.communicate()
    pairs, done = _PAIRS.search(told), _DONE.search(told)
    if process.returncode or pairs is None or done is None:
        raise RuntimeError(f"not advised as it should be:\n{told[-2000:]}")
    return int(pairs[1].replace(",", "")) / float(done[1]), use.processor_s, use.mib


def _on(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"


@cache
def _traces() -> dict[str, Trace]:
    by_group: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(_WEEK, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            by_group.setdefault(record["group"], []).append(record)
    found = {group: read_trace(group, records) for group, records in by_group.items()}
    return {group: trace for group, trace in found.items() if trace is not None}


def _places(group: str) -> range:
    return range(0, len(grid(_traces()[group])), _EVERY)


def _try(job: tuple[str, int]) -> int:
    group, place = job
    trace = _traces()[group]
    return Replay(trace, grid(trace)[place]).run().rebalances
