"""The what-if advisor: (group, setting) pairs per second, on one core and on two.

The pairs are those of the recorded week in `examples/rebalance-week`; one pair is the five replays
that a prediction is made of. Kafka has nothing of the kind. Spark adds the start of its session
and of its Python workers to this, not to each pair.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, Final

from benchmarks.harness import Bench, Figure, Pair, Row
from benchmarks.machine import ROOT
from pipeline.advisor.prediction import predict
from pipeline.advisor.reading import read_trace
from pipeline.advisor.setting import grid
from pipeline.advisor.trace import Trace

TITLE: Final = "What-if advice for a recorded week of three groups"

_WEEK: Final = ROOT / "examples" / "rebalance-week" / "week.jsonl.gz"
_EVERY: Final = 6
"""Of the grid, so that a run takes seconds."""


def measure(bench: Bench) -> Iterable[Row]:
    jobs = [(group, place) for group in sorted(_traces()) for place in _places(group)]
    speeds: dict[int, list[float]] = {1: [], 2: []}
    context = multiprocessing.get_context("spawn")
    for cores, measured in speeds.items():
        with ProcessPoolExecutor(cores, mp_context=context) as pool:
            list(pool.map(_try, jobs[: 2 * cores]))
            for _ in range(bench.runs):
                begun = time.perf_counter()
                counts = list(pool.map(_try, jobs))
                assert all(counts), "a replay without a rebalance"
                measured.append(len(jobs) / (time.perf_counter() - begun))
    for cores, measured in speeds.items():
        name = f"group and setting, five replays each, {cores} core{'s' if cores > 1 else ''}"
        yield Row(name, "pairs/s", Pair(Figure(tuple(measured))), "more")


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
    return predict(trace, grid(trace)[place]).rebalances
