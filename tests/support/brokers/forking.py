"""A process that has loaded the broker, and forks one whenever it is told to.

`python -m tests.support.brokers.forking name=value ...` reads a line for each start, and
answers with the process id; a line `wait` is answered with the exit code of the last one. A start
takes a tenth of what it takes to import everything and to make the codecs, which counts where there
are thousands. Apart from that it is `python -m kohort serve`. When its input ends, it kills what it
has started.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from kohort.broker.daemon import run_daemon
from kohort.broker.dispatch.registry import Route
from kohort.broker.handlers import load_handlers

WAIT: Final = "wait"


def serve(overrides: Sequence[str], prepare: Callable[[], None] = lambda: None) -> None:
    """Fork brokers with these settings; `prepare` is called in each of them first."""
    for api in load_handlers().values():
        for version in range(api.versions.low, api.versions.high + 1):
            Route(api, version)
    gc.collect()
    gc.freeze()
    alive = 0
    for line in sys.stdin:
        if line.strip() == WAIT:
            _, status = os.waitpid(alive, 0)
            alive = 0
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        alive = os.fork()
        if not alive:
            _become_broker(overrides, prepare)
        print(alive, flush=True)
    if alive:
        os.kill(alive, signal.SIGKILL)


def _become_broker(overrides: Sequence[str], prepare: Callable[[], None]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    code = 1
    try:
        prepare()
        code = run_daemon(None, overrides)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])
