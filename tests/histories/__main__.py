"""`python -m tests.histories`: runs of a broker that is disturbed, each judged by the checker."""

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.histories.broker import FAULTS, SteppedClock
from tests.histories.disturbances import EVERY, KILL, NOT_LETHAL, Disturber, Pace
from tests.histories.run import PACE, Result, errors_told, kohort, run
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.server_process import ServerProcess

TOLD_MAX = 10
"""Anomalies of one run; the others are counted."""
KILL_PACE = Pace(0, 0.4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="of each run (60)")
    parser.add_argument("--seed", help="any text; a new one every time by default")
    parser.add_argument("--kafka", action="store_true", help="against an Apache Kafka 4.4.0")
    parser.add_argument("--fault", choices=FAULTS, help="planted in the broker, to be found")
    parser.add_argument("--kills", type=int, help="nothing but so many kills in each run, quickly")
    parser.add_argument("--keep", type=Path, help="where the files of runs with anomalies go")
    options = parser.parse_args()
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    print(f"seed {seed}", flush=True)
    total: Counter[str] = Counter()
    for number in range(options.runs):
        begun_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="histories") as directory:
            result = _one(options, f"{seed}.{number}", Path(directory))
            if (result.anomalies or result.errors) and options.keep is not None:
                shutil.copytree(directory, options.keep / result.seed, dirs_exist_ok=True)
        total.update(_tally(result))
        took_s = time.monotonic() - begun_s
        print(f"run {number + 1} of {options.runs}, {took_s:.0f} s: {describe(result)}", flush=True)
        _print(result)
    print("in all: " + ", ".join(f"{count:,} {name}" for name, count in total.items()))
    return 1 if total["anomalies"] or total["errors in the broker's log"] else 0


def _one(options: argparse.Namespace, seed: str, directory: Path) -> Result:
    kinds: Sequence[str] = NOT_LETHAL if options.kafka else EVERY
    if options.kills:
        kinds = [KILL]
    pace = KILL_PACE if options.kills else PACE

    def go_on(disturber: Disturber) -> bool:
        return not options.kills or disturber.done[KILL] < options.kills

    seconds = math.inf if options.kills else options.seconds
    server: ServerProcess
    clock: SteppedClock | None
    if options.kafka:
        server, clock = KafkaServer(directory), None
    else:
        server, clock = kohort(directory, fault=options.fault)
    with server:
        result = run(server, clock, seed=seed, seconds=seconds, kinds=kinds, pace=pace, go_on=go_on)
    if not options.kafka:
        result.errors += errors_told(server)
    return result


def _tally(result: Result) -> Counter[str]:
    tally = Counter(runs=1)
    tally["transactions"] = len(result.history.transactions)
    tally.update({name.lower(): count for name, count in result.outcomes.items()})
    tally["operations"] = result.operations
    tally.update(result.disturbances)
    tally["anomalies"] = len(result.anomalies)
    tally["errors in the broker's log"] = len(result.errors)
    return tally


def describe(result: Result) -> str:
    """In a line."""
    counts = [f"{count:,} {name}" for name, count in _tally(result).items() if name != "runs"]
    refusals = ", ".join(f"{name} {count}" for name, count in result.refusals.most_common(6))
    return f"{', '.join(counts)} (refused: {refusals or 'nothing'})"


def _print(result: Result) -> None:
    for wrong in [*result.anomalies[:TOLD_MAX], *result.errors[:TOLD_MAX]]:
        print(f"  {str(wrong)[:600]}", flush=True)
    if len(result.anomalies) > TOLD_MAX:
        kinds = Counter(anomaly.kind.value for anomaly in result.anomalies)
        print(f"  in all: {dict(kinds)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
