"""`python -m benchmarks.generator LOAD ARGUMENTS`: make one load, and print its figures as JSON."""

import gc
import json
import resource
import sys
from importlib import import_module
from typing import Final

LOADS: Final = {
    "small requests": ("small_requests", "run"),
    "group": ("group", "run"),
    "members' memory": ("group", "memory"),
    "idle": ("idle", "run"),
    "produce": ("clients", "produce"),
    "fetch": ("clients", "fetch"),
    "end to end": ("clients", "end_to_end"),
    "transactions": ("transactions", "run"),
    "filled with transactions": ("transactions", "fill"),
    "read": ("reading", "run"),
    "one record each": ("clients", "produce_one_each"),
}
"""Module and function. Only the module that is wanted is loaded."""


def main() -> None:
    load, arguments = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    gc.disable()  # A generator's life is short, and its pauses would be taken for the broker's.
    module, function = LOADS[load]
    run = getattr(import_module(f"benchmarks.generator.{module}"), function)
    print(json.dumps(run(**json.loads(arguments))))


if __name__ == "__main__":
    main()
