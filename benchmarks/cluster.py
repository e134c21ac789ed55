"""What landing and the history cost on a cluster: two workers of one core each, on this machine.

The rows are those of `landing` and `analysis`; processor time is of the driver, the workers and all
executors together.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks import analysis, landing
from benchmarks.harness import Bench, Row, progress
from benchmarks.spark_cluster import Cluster

TITLE: Final = "The same on spark:// with two workers"

_GROUPS: Final = (2, 20, 200, 2_000)


def measure(bench: Bench) -> Iterable[Row]:
    if not analysis.JARS.is_dir():
        progress("")
        return
    directory = bench.directory / "cluster"
    directory.mkdir()
    with closing(Cluster(directory)) as cluster:
        for _ in range(2):
            cluster.add_worker()
        figures = bench.alternate(partial(landing.land, bench, cluster=cluster))
        yield from landing.rows(figures)
        for groups in _GROUPS:
            yield from analysis.rows(replace(bench, runs=1), groups, cluster)
