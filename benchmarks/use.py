"""What a command and all that it starts have used: processor time and memory.

Of a Spark job on one machine that is Python, the JVM of driver and executor, and Python's workers.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from benchmarks.processes import cpu_s, resident_mib

_LOOK_EVERY_S: Final = 0.5


class Use:
    """Resources used by the process `pid` and its descendants, sampled until it ends."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        """Resident memory of all of them together, at most."""
        self._cpu_s: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    @property
    def processor_s(self) -> float:
        """Processor time in the samples: the last half second of each process may be missing."""
        return sum(self._cpu_s.values())

    def _watch(self, pid: int) -> None:
        pause = threading.Event()
        while Path(f"/proc/{pid}/task").exists():
            self.mib = max(self.mib, sum(map(self._look, [pid, *_descendants(pid)])))
            pause.wait(_LOOK_EVERY_S)

    def _look(self, pid: int) -> float:
        try:
            self._cpu_s[pid] = cpu_s(pid)
            return resident_mib(pid)
        except (OSError, RuntimeError, ValueError):
            return 0.0  # Gone meanwhile.


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return found  # Gone meanwhile.
    for task in tasks:
        try:
            children = [int(child) for child in task.read_text(encoding="ascii").split()]
        except OSError:
            continue
        found += children
        for child in children:
            found += _descendants(child)
    return found
