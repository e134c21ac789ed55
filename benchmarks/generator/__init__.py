"""The load that brokers are measured with, made by a process of its own.

One kind of load is one module here with a function of its own in `benchmarks.generator.__main__`.
Requests are written by hand to sockets, from frames that were prepared before, wherever a client
library would cost more than the broker; `clients` has the loads that librdkafka makes.
"""

import json
import subprocess
import sys
from typing import Any, Final

from benchmarks.harness import Measured

TIMEOUT_S: Final = 900


def generate(load: str, **arguments: Any) -> Measured:  # noqa: ANN401 - whatever JSON can say.
    """Run one load to its end and return its figures.

    Raises RuntimeError with what the generator said, if an answer was wrong or none came.
    """
    command = [sys.executable, "-m", "benchmarks.generator", load, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        what = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{load} with {arguments} failed: {what}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
