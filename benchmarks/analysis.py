"""The history of rebalances into tables and findings: events per second.

`kohort pipeline rebalances --from FILE`, as its users run it, in a process of its own: a day of
groups of eight members, each of which rebalances a hundred times, with all that the broker
writes of it. The figures are those of the whole command, Spark's start included. Then one more
event of one group, into the same lake: what a minute brings to a lake that is there. Kafka has
nothing of the kind.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Bench, Figure, Pair, Row, progress
from benchmarks.machine import ROOT
from benchmarks.spark_cluster import Cluster
from benchmarks.use import Use

TITLE: Final = "The history of rebalances into tables with Spark"

_GROUPS: Final = (2, 20, 200, 2_000)
"""The number of groups in each history."""
_ONCE: Final = 2_000
"""So many groups are worked out once only: they take minutes."""
_REBALANCES: Final = 100
"""The number of rebalances of each group."""
_MEMBERS: Final = 8
_PARTITIONS: Final = 24
_BEGIN_MS: Final = 1_767_362_400_000
_PAUSE_MS: Final = 864_000
JARS: Final = ROOT / ".cache" / "jars"
_TAKEN: Final = re.compile(r"rebalances: ([\d,]+) rebalances?, .*; [\d.]+ s")
_FOUND: Final = re.compile(r"findings of ([\d,]+) groups? made again; ")


def measure(bench: Bench) -> Iterable[Row]:
    if not JARS.is_dir():
        progress("")
        return
    for groups in _GROUPS:
        yield from rows(bench, groups)


def rows(bench: Bench, groups: int, cluster: Cluster | None = None) -> Iterable[Row]:
    """Measure the history of so many groups, on this machine's cores or on a cluster."""
    events = groups * _REBALANCES
    path, more = bench.directory / f"history-{events}.jsonl", bench.directory / "one-more.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in history(groups))
    one = _rebalance("group-0", _REBALANCES + 1, random.Random(2))
    more.write_text(json.dumps(one) + "\n", encoding="utf-8")
    times = 1 if groups >= _ONCE else bench.runs
    lakes = [
        bench.directory / f"analysis-{events}-{number}{'-cluster' if cluster else ''}"
        for number in range(times)
    ]
    runs = [run(path, lake, events, groups, cluster) for lake in lakes]
    later = [run(more, lake, 1, 1, cluster) for lake in lakes]

    def figure(of: list[_Use], name: str) -> Pair:
        return Pair(Figure(tuple(float(getattr(one, name)) for one in of)))

    yield Row(f"{events:,} events: the whole command", "s", figure(runs, "whole_s"))
    yield Row("processor time of it", "s", figure(runs, "processor_s"))
    yield Row("memory of driver and executor at most", "MiB", figure(runs, "mib"))
    yield Row("what it writes", "MB", figure(runs, "written_mb"))
    yield Row("one more event: the whole command", "s", figure(later, "whole_s"))
    yield Row("processor time of it", "s", figure(later, "processor_s"))
    yield Row("what it writes", "MB", figure(later, "written_mb"))


@dataclass(frozen=True, slots=True)
class _Use:
    """What one run of the command took."""

    whole_s: float
    processor_s: float
    mib: float
    written_mb: float


def run(path: Path, lake: Path, events: int, groups: int, cluster: Cluster | None = None) -> _Use:
    """Take a file of so many events into a lake; groups are those that it has something new of."""
    command = [sys.executable, "-m", "kohort.cli", "pipeline", "rebalances", "--from", str(path)]
    command += ["--lake", str(lake), "--jars", str(JARS)]
    command += ["--conf", "spark.ui.enabled=false", *(cluster.arguments if cluster else ())]
    before = _size(lake)
    executors_s = cluster.processor_s if cluster else 0.0
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=cluster.environment if cluster else None,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    use = Use(process.pid)
    _, told = process.communicate()
    whole_s = time.perf_counter() - begun
    # A file is taken in pieces, each with a line of its own.
    taken, found = _TAKEN.findall(told), _FOUND.search(told)
    if (
        process.returncode
        or found is None
        or sum(map(_number, taken)) != events
        or _number(found[1]) != groups
    ):
        raise RuntimeError(f"not analysed as it should be:\n{told[-2000:]}")
    progress(f"{events:,} events in {whole_s:.0f} s, start included")
    return _Use(
        whole_s,
        use.processor_s + (cluster.processor_s - executors_s if cluster else 0.0),
        use.mib,
        (_size(lake) - before) / 1e6,
    )


def _size(lake: Path) -> int:
    return sum(path.stat().st_size for path in lake.rglob("*") if path.is_file())


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def history(groups: int) -> Iterator[dict[str, Any]]:
    """The events of a day, as a broker writes them."""
    chance = random.Random(1)
    for number in range(1, _REBALANCES + 1):
        for group in range(groups):
            yield _rebalance(f"group-{group}", number, chance)


def _rebalance(group: str, number: int, chance: random.Random) -> dict[str, Any]:
    """Every other time a member is lost, and comes back the next time."""
    lost = (number // 2) % _MEMBERS
    is_loss = number % 2 == 0
    per_member = _PARTITIONS // _MEMBERS
    shares = [
        [f"orders-{index * per_member + place}" for place in range(per_member)]
        for index in range(_MEMBERS)
    ]
    share, heir = shares[lost], (lost + 1) % _MEMBERS
    gained = (
        shares if number == 1 else [share if index == heir else [] for index in range(_MEMBERS)]
    )
    members = [
        _member(group, index, chance, gained=gained[index] if is_loss or number == 1 else [])
        for index in range(_MEMBERS)
        if index != lost
    ]
    about_lost = _member(group, lost, chance, gained=[] if is_loss else share)
    if is_loss:
        about_lost |= {"fate": "session_expired", "fate_ms": 0, "join_received_ms": None}
        about_lost |= {"sync_answered_ms": None, "mode": None, "stopped_ms": None}
        about_lost["partitions"] = _share(given_up=share)
    elif number > 1:
        about_lost["fate"] = "new"
        for member in members:
            if member["client_id"] == f"client-{heir}":
                member["partitions"] = _share(given_up=share)
    at_ms = _BEGIN_MS + number * _PAUSE_MS
    stops = [member["stopped_ms"] or 0 for member in members]
    return {
        "schema": 1,
        "kind": "rebalance",
        "group": group,
        "sequence": number,
        "previous_generation": number - 1,
        "generation": number,
        "previous_state": "Stable",
        "initial": number == 1,
        "protocol_type": "consumer",
        "started_at_ms": at_ms,
        "trigger": {
            "kind": "session_expired" if is_loss else "member_added",
            "at_ms": at_ms,
            "member_id": about_lost["member_id"],
            "client_id": about_lost["client_id"],
            "host": about_lost["host"],
            "session_timeout_ms": 45_000 if is_loss else None,
        },
        "further_causes": [],
        "timeline": {"join_phase_ms": 900, "leader_synced_ms": 930, "finished_ms": 940},
        "waited_for": {"phase": "join", "member_ids": [members[0]["member_id"]], "ms": 300},
        "outcome": "stable",
        "protocol": "range",
        "leader": members[0]["member_id"],
        "members_before": _MEMBERS,
        "members_after": len(members) + (not is_loss),
        "partitions": {"known": True, "kept": 20, "moved": 3, "gained": 3, "given_up": 3},
        "stopped": {
            "member_count": len(stops),
            "longest_ms": max(stops),
            "total_ms": sum(stops),
            "open_count": 0,
        },
        "members": [*members, about_lost],
        "members_dropped": 0,
    }


def _member(group: str, index: int, chance: random.Random, *, gained: list[str]) -> dict[str, Any]:
    join_ms = chance.randrange(20, 900)
    return {
        "member_id": f"client-{index}-of-{group}",
        "instance_id": None,
        "client_id": f"client-{index}",
        "host": f"/10.0.0.{index}",
        "role": "follower",
        "told_ms": join_ms - 10,
        "join_received_ms": join_ms,
        "join_answered_ms": 900,
        "sync_received_ms": 910,
        "sync_answered_ms": 940,
        "fate": "kept",
        "mode": "eager",
        "stopped_ms": 940 - join_ms,
        "stopped_open": False,
        "partitions": _share(gained=gained),
    }


def _share(*, gained: list[str] | None = None, given_up: list[str] | None = None) -> dict[str, Any]:
    gained, given_up = gained or [], given_up or []
    return {
        "known": True,
        "kept": 3,
        "gained": gained,
        "gained_count": len(gained),
        "given_up": given_up,
        "given_up_count": len(given_up),
    }
