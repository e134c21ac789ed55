"""`python -m benchmarks.generator LOAD ARGUMENTS`: make one load, and print its figures as JSON."""

import gc
import json
import resource
import sys
from collections.abc import Callable
from typing import Final

from benchmarks.generator import clients, group, idle, small_requests
from benchmarks.harness import Measured

LOADS: Final[dict[str, Callable[..., Measured]]] = {
    "small requests": small_requests.run,
    "group": group.run,
    "members' memory": group.memory,
    "idle": idle.run,
    "produce": clients.produce,
    "fetch": clients.fetch,
    "end to end": clients.end_to_end,
    "one record each": clients.produce_one_each,
}


def main() -> None:
    load, arguments = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    gc.disable()  # A generator's life is short, and its pauses would be taken for the broker's.
    print(json.dumps(LOADS[load](**json.loads(arguments))))


if __name__ == "__main__":
    main()
